"""Which tasks a verb is about: the options that choose them, and all that they choose."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..lifecycle import TERMINAL, State
from ..terminal_text import printable
from .completion import complete_state, complete_tool

if TYPE_CHECKING:
    from ..task import Task
    from .place import Place

_PAGE = 500

#: The options of a verb that is `filtered`, and what they are where they are not given.
OPTIONS: dict[str, tuple[Any, Any]] = {
    "states": (
        Annotated[
            list[str] | None,
            typer.Option("--state", metavar="STATE", help="May be repeated", autocompletion=complete_state),
        ],
        None,
    ),
    "active": (Annotated[bool, typer.Option("--active", help="Only tasks that are not finished")], False),
    "tool": (
        Annotated[
            str | None,
            typer.Option("--tool", metavar="NAME", help="Tasks of this tool", autocompletion=complete_tool),
        ],
        None,
    ),
    "tags": (
        Annotated[
            list[str] | None,
            typer.Option("--tag", metavar="TAG", help="With any of these tags; may be repeated"),
        ],
        None,
    ),
    "parent": (
        Annotated[str | None, typer.Option(metavar="TASK_ID", help="Tasks that this one started")],
        None,
    ),
    "since": (
        Annotated[
            str | None,
            typer.Option(
                metavar="TIME",
                help="Submitted in the last 10m, 2h, 3d …, or after a local time as 2026-02-05T14:30",
            ),
        ],
        None,
    ),
}


def filters(
    *,
    states: list[str] | None = None,
    active: bool = False,
    tool: str | None = None,
    tags: list[str] | None = None,
    parent: str | None = None,
    since: str | None = None,
) -> dict[str, Any]:
    """What `TaskService.list` takes, of the options that were given and of no other."""
    wanted = [*(states or ()), *([state for state in State if state not in TERMINAL] if active else ())]
    given = {
        "states": wanted,
        "tool_name": tool,
        "tags_any": tags,
        "parent_id": parent,
        "submitted_after": None if since is None else _since(since),
    }
    return {name: value for name, value in given.items() if value not in (None, [])}


def every_task(place: Place, chosen: dict[str, Any]) -> Iterator[Task]:
    """All tasks that a filter chooses, on however many pages they are."""
    cursor = None
    while True:
        page = place.service.list(owner=place.owner, **chosen, limit=_PAGE, cursor=cursor)
        yield from page.tasks
        if (cursor := page.next_cursor) is None:
            return


def _since(text: str) -> int:
    """Milliseconds of a moment: so long ago, or a time."""
    from ..errors import ConfigError
    from ..times import duration_s

    try:
        return int((time.time() - duration_s(text)) * 1000)
    except ConfigError:
        return local_ms(text)


def local_ms(text: str) -> int:
    """Milliseconds of an ISO 8601 time, by the person's clock where it names no zone."""
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        reason = f"{printable(text)} is neither a span of time such as 2h nor a time as 2026-02-05T14:30"
        raise typer.BadParameter(reason) from None
