"""What the shell can complete: task ids and tool names of the place that the command line names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..lifecycle import State

if TYPE_CHECKING:
    from .place import Place

_OFFERED = 50


def complete_task_id(ctx: Any, incomplete: str) -> list[tuple[str, str]]:
    """The latest task ids, each with what it is."""

    def find(place: Place) -> Iterator[tuple[str, str]]:
        for task in place.service.list(owner=place.owner, limit=_OFFERED).tasks:
            if task.task_id.startswith(incomplete):
                yield task.task_id, f"{task.tool_name}, {task.state}"

    return _look(ctx, find)


def complete_tool(ctx: Any, incomplete: str) -> list[tuple[str, str]]:
    """The names of the app's tools."""

    def find(place: Place) -> Iterator[tuple[str, str]]:
        for one in place.operator.tools():
            if one["tool_name"].startswith(incomplete):
                yield one["tool_name"], one["description"].partition("\n")[0]

    return _look(ctx, find)


def complete_state(incomplete: str) -> list[str]:
    return [state for state in State if state.startswith(incomplete)]


def _look(ctx: Any, find: Callable[[Place], Iterator[tuple[str, str]]]) -> list[tuple[str, str]]:
    """What `find` sees; nothing where the place cannot be opened, since a shell has no use for an error."""
    from ..terminal_text import printable
    from .place import Where, opened

    try:
        with opened(Where.of(ctx.params)) as place:
            return [(word, printable(text)) for word, text in find(place)]
    except Exception:
        return []
