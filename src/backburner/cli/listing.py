"""`ls`: which tasks there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..lifecycle import State
from ..records import status_record
from ..short_names import owner_name
from ..terminal_text import printable
from .live_picture import show_live
from .output import age, cell, error_line, print_json, say, show, span, state_cell, stdout, table, took_s
from .place import Place
from .verb import verb

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..service import TaskStatus
    from ..task_pages import TaskPage

#: On a narrower terminal, the ids in a list are shortened.
_ROOM_FOR_WHOLE_IDS = 110


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
        filtered=True,
        remote=True,
    )(list_tasks)


def list_tasks(
    place: Place,
    chosen: dict[str, Any],
    limit: Annotated[int, typer.Option("--limit", "-n", help="At most so many")] = 20,
    cursor: Annotated[str | None, typer.Option(help="Go on where a page ended (next_cursor)")] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Stay, and show what changes")] = False,
) -> None:
    """List tasks, newest first."""
    chosen |= {"limit": limit, "cursor": cursor}
    if watch and not place.as_json:
        _watch(place, chosen)
        return
    page, statuses = _page(place, chosen)
    if place.as_json:
        print_json({"tasks": [status_record(one) for one in statuses], "next_cursor": page.next_cursor})
        return
    if statuses:
        show(_table(place, statuses))
    else:
        say("No tasks.")
    if page.next_cursor:
        say(f"There are more: --limit {limit * 5}, or --cursor {page.next_cursor}")
    if others := tasks_of_others(place):
        say(f"{others} not shown: --all-owners", "dim")


def tasks_of_others(place: Place) -> str:
    """Subject and verb of a sentence about the tasks of owners that the options leave out; empty for none."""
    if place.owner is None:
        return ""
    owners = place.store.count_owners()
    count = sum(owners.values()) - owners.get(place.owner, 0)
    if count == 1:
        return "1 task of another owner is"
    return f"{count} tasks of other owners are" if count else ""


def _page(place: Place, chosen: dict[str, Any]) -> tuple[TaskPage, list[TaskStatus]]:
    page = place.service.list(owner=place.owner, **chosen)
    return page, [place.service.view(task) for task in page.tasks]


def _watch(place: Place, chosen: dict[str, Any]) -> None:
    def picture() -> RenderableType:
        from rich.console import Group

        page, statuses = _page(place, chosen)
        rows = _table(place, statuses) if statuses else cell("No tasks.")
        return Group(rows, cell("… and older ones" if page.next_cursor else "", "dim"))

    show_live(place, picture)


def _table(place: Place, statuses: Sequence[TaskStatus]) -> RenderableType:
    owners = place.owner is None
    columns = ["TASK", "STATE", *(["OWNER"] if owners else []), "TOOL", "AGE", "TOOK", "PROGRESS"]
    rows = [
        [
            shown_id(place, status.task_id),
            state_cell(status.task.state),
            *([owner_name(status.task.owner)] if owners else []),
            status.task.tool_name,
            age(status.task.submitted_at),
            span(took_s(status.task)),
            progress_words(status),
        ]
        for status in statuses
    ]
    return table(columns, rows, whole=("TASK", "STATE", "OWNER", "AGE"))


def shown_id(place: Place, task_id: str) -> str:
    """An id as a list has it: where it would leave no room for the rest, shortened to what still works."""
    return task_id if stdout().width >= _ROOM_FOR_WHOLE_IDS else place.short_id(task_id)


def progress_words(status: TaskStatus) -> str:
    """How far a task is, or why it is not further."""
    task, progress = status.task, status.task.progress
    if task.error is not None and task.finished:
        return printable(error_line(task.error))
    if task.state is State.INPUT_REQUIRED and status.questions:
        return printable(f"asks: {status.questions[0].params.get('message', '')}")
    if task.waits_for is not None:
        return printable(task.waits_for)
    if task.finished or progress is None:
        return ""
    percent = None if progress.percent is None else f"{progress.percent:.0f}%"
    left = None if status.eta_s is None else f"{span(status.eta_s)} left"
    return printable(" · ".join(part for part in (percent, progress.phase, left, progress.message) if part))
