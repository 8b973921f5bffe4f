"""Watching one task: a live bar on a terminal, lines in a pipe, silence where JSON is wanted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from ..lifecycle import State
from ..task_log_lines import is_unfinished
from ..terminal_text import printable
from .output import cell, log_cells, say, span, state_cell, stderr, took_s

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from ..service import TaskStatus
    from ..task import LogLine
    from .place import Place

_LOOK_AGAIN_S = 0.5


class View(Protocol):
    """Who is shown what happens to a task.

    One that `overwrites` gets lines that later ones replace as well.
    """

    overwrites: bool

    def line(self, line: LogLine) -> None: ...

    def update(self, status: TaskStatus) -> None: ...


def follow(
    place: Place, task_id: str, view: View, timeout_s: float | None = None, cursor: str | None = None
) -> TaskStatus:
    """Show the task until it is finished or the time is over; each log line after `cursor` once."""
    end = None if timeout_s is None else time.monotonic() + timeout_s
    with place.news(task_id) as news:
        while True:
            news.clear()
            status = place.service.status(
                task_id, owner=place.owner
            )  # before the logs: then they are all there
            cursor = pass_on_logs(place, task_id, view, cursor)
            view.update(status)
            left = None if end is None else end - time.monotonic()
            if status.task.finished or (left is not None and left <= 0):
                return status
            news.wait(_LOOK_AGAIN_S if left is None else min(left, _LOOK_AGAIN_S))


def pass_on_logs(place: Place, task_id: str, view: View, cursor: str | None) -> str | None:
    """Hand every line after `cursor` to the view; the new cursor."""
    while True:
        page = place.service.logs(task_id, owner=place.owner, cursor=cursor, limit=1000, operator=True)
        for line in page.lines:
            if not is_unfinished(line) or view.overwrites:
                view.line(line)
        cursor = page.next_cursor
        if not page.truncated:
            return cursor


@contextmanager
def view_for(place: Place, tool_name: str) -> Iterator[View]:
    """The view that fits where the output goes."""
    if place.as_json:
        yield Silence()
    elif stderr().is_terminal:
        from rich.live import Live

        with Live(console=stderr(), refresh_per_second=8, transient=True) as live:
            yield Bar(live, place, tool_name)
    else:
        yield Lines(place)


class Silence:
    """Shows nothing."""

    overwrites = False

    def line(self, line: LogLine) -> None: ...

    def update(self, status: TaskStatus) -> None: ...


class Lines:
    """A line for each new state and each line of the log."""

    overwrites = False

    def __init__(self, place: Place) -> None:
        self._place = place
        self._state: State | None = None

    def line(self, line: LogLine) -> None:
        for one in log_cells(line):
            say(one.plain)

    def update(self, status: TaskStatus) -> None:
        if status.task.state is not self._state:
            self._state = status.task.state
            say(f"{status.task_id} {self._state}")
            for hint in question_hints(self._place, status):
                say(hint)


class Bar:
    """One line that stays below the log: state, bar, percent, phase, time left, message."""

    overwrites = False

    def __init__(self, live: Live, place: Place, tool_name: str) -> None:
        self._live = live
        self._place = place
        self._tool_name = tool_name
        self._asked: set[str] = set()

    def line(self, line: LogLine) -> None:
        for one in log_cells(line):
            self._live.console.print(one, soft_wrap=True)

    def update(self, status: TaskStatus) -> None:
        keys = {question.key for question in status.questions}
        if keys - self._asked:
            self._asked |= keys
            for hint in question_hints(self._place, status):
                self._live.console.print(cell(hint, "magenta"), soft_wrap=True)
        self._live.update("" if status.task.finished else self._row(status))
        if status.task.finished:
            took = "" if took_s(status.task) is None else f" in {span(took_s(status.task))}"
            self._live.console.print(
                cell(f"{self._tool_name} ", "bold").append_text(state_cell(status.task.state)).append(took)
            )

    def _row(self, status: TaskStatus) -> Table:
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        progress = status.task.progress
        percent = None if progress is None else progress.percent
        running = status.task.state is State.RUNNING
        row = Table.grid(padding=(0, 1))
        row.add_column(no_wrap=True)
        row.add_column(no_wrap=True)
        row.add_column(width=24)
        row.add_column(no_wrap=True, justify="right")
        row.add_column(no_wrap=True, overflow="ellipsis")
        row.add_row(
            cell(self._tool_name, "bold"),
            state_cell(status.task.state),
            ProgressBar(total=100, completed=percent or 0, pulse=running and percent is None, width=24),
            cell("" if percent is None else f"{percent:.0f}%"),
            cell(" · ".join(_details(status))),
        )
        return row


def _details(status: TaskStatus) -> list[str]:
    """What to say beside the bar: the place in the queue, the phase, the time left, the tool's message."""
    task, progress = status.task, status.task.progress
    if task.state is State.QUEUED:
        if status.position is not None:
            return [f"position {status.position} in {task.queue}"]
        return [task.waits_for or "waits for its next try"]
    parts = []
    if progress is not None and progress.phase:
        parts.append(progress.phase)
    if status.eta_s is not None and task.started_at is not None:
        parts.append(f"about {span(status.eta_s)} left")
    if progress is not None and progress.message:
        parts.append(progress.message)
    if task.tries > 1:
        parts.append(f"attempt {task.tries}")
    return parts


def question_hints(place: Place, status: TaskStatus) -> list[str]:
    """What the task asks, and the command that answers."""
    hints = []
    for question in status.questions:
        schema = question.params.get("requestedSchema") or {}
        fields = " ".join(f"{name}=…" for name in schema.get("properties") or {})
        hints.append(f"The task asks: {printable(question.params.get('message') or question.method)}")
        several = f" --question {question.key}" if len(status.questions) > 1 else ""
        command = place.command("answer", status.task_id)
        hints.append(f"  answer it with: {command}{several} {printable(fields)}".rstrip())
    return hints
