"""`ls`: which tasks there are."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..lifecycle import TERMINAL, State
from ..terminal_text import printable
from .completion import complete_state, complete_tool
from .output import age, cell, print_json, say, show, span, state_cell, stdout, table, took_s
from .place import Place
from .records import status_record
from .verb import verb

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..service import TaskPage, TaskStatus

_REDRAW_S = 0.25
_LOOK_AGAIN_S = 1.0


def add_to(app: typer.Typer) -> None:
    verb(
        app,
        "ls",
        examples=[
            "backburner ls -t lab.py",
            "backburner ls --active --watch",
            "backburner ls --state failed --state timed_out --since 1d",
            "backburner ls --tool relax --tag project:screening --json | jq -r '.tasks[].task_id'",
        ],
    )(list_tasks)


def list_tasks(
    place: Place,
    states: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="May be repeated", autocompletion=complete_state),
    ] = None,
    active: Annotated[bool, typer.Option("--active", help="Only tasks that are not finished")] = False,
    tool: Annotated[
        str | None, typer.Option(metavar="NAME", help="Tasks of this tool", autocompletion=complete_tool)
    ] = None,
    tags: Annotated[
        list[str] | None, typer.Option("--tag", metavar="TAG", help="With any of these tags; may be repeated")
    ] = None,
    parent: Annotated[str | None, typer.Option(metavar="TASK_ID", help="Tasks that this one started")] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Submitted in the last 2h, 3d …, or after an ISO 8601 time"),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="At most so many")] = 20,
    cursor: Annotated[str | None, typer.Option(help="Go on where a page ended (next_cursor)")] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Stay, and show what changes")] = False,
) -> None:
    """List tasks, newest first."""
    wanted: list[str] = list(states or [])
    if active:
        wanted += [state for state in State if state not in TERMINAL]
    filters = {
        "states": wanted,
        "tool_name": tool,
        "tags_any": tags or (),
        "parent_id": parent,
        "submitted_after": None if since is None else _moment(since),
        "limit": limit,
        "cursor": cursor,
    }
    if watch and not place.as_json:
        _watch(place, filters)
        return
    page, statuses = _page(place, filters)
    if place.as_json:
        print_json({"tasks": [status_record(one) for one in statuses], "next_cursor": page.next_cursor})
        return
    if not statuses:
        say("No tasks.")
        return
    show(_table(place, statuses))
    if page.next_cursor:
        say(f"There are more: --limit {limit * 5}, or --cursor {page.next_cursor}")


def _page(place: Place, filters: dict[str, Any]) -> tuple[TaskPage, list[TaskStatus]]:
    page = place.service.list(owner=place.owner, **filters)
    return page, [place.service.view(task) for task in page.tasks]


def _watch(place: Place, filters: dict[str, Any]) -> None:
    """Redraw after each change, a few times a second at most, until Ctrl-C."""
    from rich.live import Live

    def picture() -> RenderableType:
        from rich.console import Group

        page, statuses = _page(place, filters)
        rows = _table(place, statuses) if statuses else cell("No tasks.")
        return Group(rows, cell("… and older ones" if page.next_cursor else "", "dim"))

    watch = place.store.watch()
    try:
        with Live(picture(), console=stdout(), auto_refresh=False, screen=stdout().is_terminal) as live:
            while True:
                drawn = time.monotonic()
                watch.wait(_LOOK_AGAIN_S)
                watch.mend()
                time.sleep(max(0.0, drawn + _REDRAW_S - time.monotonic()))
                live.update(picture(), refresh=True)
    finally:
        watch.close()


def _table(place: Place, statuses: Sequence[TaskStatus]) -> RenderableType:
    owners = place.owner is None
    columns = ["TASK", "STATE", *(["OWNER"] if owners else []), "TOOL", "AGE", "TOOK", "PROGRESS"]
    rows = [
        [
            status.task_id,
            state_cell(status.task.state),
            *([status.task.owner] if owners else []),
            status.task.tool_name,
            age(status.task.submitted_at),
            span(took_s(status.task)),
            _progress(status),
        ]
        for status in statuses
    ]
    return table(columns, rows, whole=("TASK", "STATE", "AGE", "TOOK"))


def _progress(status: TaskStatus) -> str:
    task, progress = status.task, status.task.progress
    if task.error is not None and task.finished:
        return printable(f"{task.error.type}: {task.error.message}")
    if task.state is State.INPUT_REQUIRED and status.questions:
        return printable(f"asks: {status.questions[0].params.get('message', '')}")
    if task.finished or progress is None:
        return ""
    percent = None if progress.percent is None else f"{progress.percent:.0f}%"
    left = None if status.eta_s is None else f"{span(status.eta_s)} left"
    return printable(" · ".join(part for part in (percent, progress.phase, left, progress.message) if part))


def _moment(text: str) -> int:
    """Milliseconds of a moment: so long ago, or an ISO 8601 time."""
    from ..errors import ConfigError
    from ..times import duration_s, from_iso

    try:
        return int((time.time() - duration_s(text)) * 1000)
    except ConfigError:
        pass
    try:
        return from_iso(text)
    except ValueError:
        raise typer.BadParameter(f"{printable(text)} is neither a time such as 2h nor ISO 8601") from None
