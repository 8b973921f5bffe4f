"""The `logs` command, and the views that follow a task: a live bar, plain lines, or nothing with --json."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from ..core import times
from ..core.lifecycle import State
from ..core.logs import is_unfinished
from ..core.text import printable
from ..service.records import log_record, record
from .command import TaskId, command
from .output import cell, log_cells, print_json, say, span, state_cell, stderr, stdout, took_s
from .place import Place

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    from ..core.task import LogLine
    from ..service.tasks import TaskStatus


_POLL_S = 0.5


class View(Protocol):
    """Shows a task while it runs."""

    #: Whether the view also gets unfinished lines, which later lines replace.
    overwrites: bool

    def line(self, line: LogLine) -> None: ...

    def update(self, status: TaskStatus) -> None: ...


def follow(
    place: Place, task_id: str, view: View, timeout_s: float | None = None, cursor: str | None = None
) -> TaskStatus:
    """Show a task and its log after `cursor` until it is finished, or until the timeout."""
    end = None if timeout_s is None else time.monotonic() + timeout_s
    with place.news(task_id) as news:
        while True:
            news.clear()
            # The status comes first: the log of a finished task is complete.
            status = place.service.status(task_id, owner=place.owner)
            cursor = show_logs(place, task_id, view, cursor)
            view.update(status)
            left = None if end is None else end - time.monotonic()
            if status.task.finished or (left is not None and left <= 0):
                return status
            news.wait(_POLL_S if left is None else min(left, _POLL_S))


def show_logs(place: Place, task_id: str, view: View, cursor: str | None) -> str | None:
    """Pass every line after `cursor` to the view, and return the new cursor."""
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
    """Return the view that fits the output: JSON, a terminal or a pipe."""
    if place.as_json:
        yield Tail(0)
    elif stderr().is_terminal:
        from rich.live import Live

        with Live(console=stderr(), refresh_per_second=8, transient=True) as live:
            yield Bar(live, place, tool_name)
    else:
        yield Lines(place)


class Tail:
    """Stores the last lines and prints nothing."""

    overwrites = False

    def __init__(self, count: int) -> None:
        self.lines: deque[LogLine] = deque(maxlen=count)

    def line(self, line: LogLine) -> None:
        self.lines.append(line)

    def update(self, status: TaskStatus) -> None: ...


class Lines:
    """Prints a line for each new state and each line of the log."""

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
    """Prints the log above one live row: state, bar, percentage, phase, time left and message."""

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
    task, progress = status.task, status.task.progress
    if task.state is State.QUEUED:
        if status.position is not None:
            return [f"position {status.position} in {task.queue}"]
        return [task.waits_for or "waiting to retry"]
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
    """Return each open question of a task, and the command that answers it."""
    hints = []
    for question in status.questions:
        schema = question.params.get("requestedSchema") or {}
        fields = " ".join(f"{name}=…" for name in schema.get("properties") or {})
        hints.append(f"The task asks: {printable(question.params.get('message') or question.method)}")
        several = f" --question {question.key}" if len(status.questions) > 1 else ""
        answer = place.command("answer", status.task_id)
        hints.append(f"  answer it with: {answer}{several} {printable(fields)}".rstrip())
    return hints


@command(
    examples=[
        "backburner logs tsk_01J8WQ6JY7 -t lab.py",
        "backburner logs -f tsk_01J8WQ6JY7",
        "backburner logs tsk_01J8WQ6JY7 --tail 100 --stream stderr --timestamps",
        "backburner logs tsk_01J8WQ6JY7 --json --cursor log_000001532",
    ],
    remote=True,
)
def logs(
    place: Place,
    task_id: TaskId,
    follow_it: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines until the end")] = False,
    tail: Annotated[int | None, typer.Option("--tail", "-n", min=0, help="Only the last lines")] = None,
    stream: Annotated[str | None, typer.Option(help="Only stdout, stderr or log")] = None,
    timestamps: Annotated[bool, typer.Option("--timestamps", help="Print the time before each line")] = False,
    cursor: Annotated[str | None, typer.Option(help="Only lines after this cursor (next_cursor)")] = None,
    limit: Annotated[int, typer.Option(min=1, max=5000, help="Lines per page with --json")] = 200,
) -> None:
    """Print the log of a task: its stdout, stderr and log records.

    --json prints a page like that of the tool tail_task_logs. With --json and -f, each line of the log is a
    line of JSON. Control characters are escaped.
    """
    if place.as_json and not follow_it:
        page = place.service.logs(task_id, owner=place.owner, cursor=cursor, limit=limit, operator=True)
        print_json(log_record(task_id, page))
        return
    printer = Printer(stream=stream, timestamps=timestamps, as_json=place.as_json)
    if tail is not None:
        last = Tail(tail)
        cursor = show_logs(place, task_id, last, cursor)
        for line in last.lines:
            printer.line(line)
    if follow_it:
        follow(place, task_id, printer, cursor=cursor)
    else:
        show_logs(place, task_id, printer, cursor)
    if printer.row_is_open:
        stdout().print()


class Printer:
    """Prints log lines to stdout. On a terminal, the next line overwrites an unfinished one."""

    def __init__(self, *, stream: str | None, timestamps: bool, as_json: bool) -> None:
        self._stream = stream
        self._timestamps = timestamps
        self._as_json = as_json
        self.overwrites = as_json or stdout().is_terminal
        self.row_is_open = False

    def line(self, line: LogLine) -> None:
        if self._stream not in (None, line.stream):
            return
        if self._as_json:
            print_json(record(line), indent=None)
            return
        when = times.moment(line.ts).astimezone().strftime("%H:%M:%S.%f")[:-3]
        cells = log_cells(line)
        if self._timestamps:
            cells = [cell(f"{when} ", "dim").append_text(one) for one in cells]
        self._clear_row()
        if is_unfinished(line):
            self._print_open_row(cells[-1])
            return
        for one in cells:
            if stdout().is_terminal:
                stdout().print(one, soft_wrap=True)
            else:  # rich is too slow for large logs
                print(one.plain, flush=True)

    def _print_open_row(self, text: Text) -> None:
        from rich.control import Control
        from rich.segment import ControlType

        text.truncate(stdout().width - 1)
        stdout().print(text, end="")
        stdout().control(Control(ControlType.CARRIAGE_RETURN))
        self.row_is_open = True

    def _clear_row(self) -> None:
        if self.row_is_open:
            from rich.control import Control
            from rich.segment import ControlType

            stdout().control(Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2)))
            self.row_is_open = False

    def update(self, status: TaskStatus) -> None: ...
