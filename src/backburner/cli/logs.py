"""`logs`: what a task wrote."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Annotated

import typer

from .. import times
from ..records import log_record, record
from ..task_log_lines import is_unfinished
from .output import cell, log_cells, print_json, stdout
from .place import Place
from .verb import TaskId, verb
from .watching import follow, pass_on_logs

if TYPE_CHECKING:
    from rich.text import Text

    from ..service import TaskStatus
    from ..task import LogLine


def add_to(app: typer.Typer) -> None:
    verb(
        app,
        examples=[
            "backburner logs tsk_01J8WQ6JY7 -t lab.py",
            "backburner logs -f tsk_01J8WQ6JY7",
            "backburner logs tsk_01J8WQ6JY7 --tail 100 --stream stderr --timestamps",
            "backburner logs tsk_01J8WQ6JY7 --json --cursor log_000001532",
        ],
        remote=True,
    )(logs)


def logs(
    place: Place,
    task_id: TaskId,
    follow_it: Annotated[
        bool, typer.Option("--follow", "-f", help="Stay until the task is finished, and show what it writes")
    ] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", min=0, help="Only the last lines so far")
    ] = None,
    stream: Annotated[str | None, typer.Option(help="Only stdout, stderr or log")] = None,
    timestamps: Annotated[bool, typer.Option("--timestamps", help="Put the time before each line")] = False,
    cursor: Annotated[str | None, typer.Option(help="Only lines after this one (next_cursor)")] = None,
    limit: Annotated[int, typer.Option(min=1, max=5000, help="With --json: so many lines at once")] = 200,
) -> None:
    """Print the log of a task: what it printed to stdout and stderr, and what it logged.

    With --json a page, as the tool tail_task_logs gives it; with --json and -f a line of JSON for
    each line of the log. Control characters are made visible.
    """
    if place.as_json and not follow_it:
        page = place.service.logs(task_id, owner=place.owner, cursor=cursor, limit=limit, operator=True)
        print_json(log_record(task_id, page))
        return
    printer = Printer(stream=stream, timestamps=timestamps, as_json=place.as_json)
    if tail is not None:
        held = Held(tail)
        cursor = pass_on_logs(place, task_id, held, cursor)
        for line in held.lines:
            printer.line(line)
    if not follow_it:
        pass_on_logs(place, task_id, printer, cursor)
    else:
        follow(place, task_id, printer, cursor=cursor)
    printer.end()


class Held:
    """Keeps the last lines."""

    overwrites = False

    def __init__(self, count: int) -> None:
        self.lines: deque[LogLine] = deque(maxlen=count)

    def line(self, line: LogLine) -> None:
        self.lines.append(line)

    def update(self, status: TaskStatus) -> None: ...


class Printer:
    """Prints lines to stdout. On a terminal, an unfinished line is overwritten by the next."""

    def __init__(self, *, stream: str | None, timestamps: bool, as_json: bool) -> None:
        self._stream = stream
        self._timestamps = timestamps
        self._as_json = as_json
        self.overwrites = as_json or stdout().is_terminal
        self._is_open = False

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
        if is_unfinished(line):
            self._overwrite(cells[-1])
            return
        self.close()
        for one in cells:
            if stdout().is_terminal:
                stdout().print(one, soft_wrap=True)
            else:  # rich would write the same, and takes minutes for what may be in a log
                print(one.plain, flush=True)

    def _overwrite(self, text: Text) -> None:
        """Put a text into the last row of the terminal, which stays open."""
        from rich.control import Control
        from rich.segment import ControlType

        console = stdout()
        self.close()
        text.truncate(console.width - 1)
        console.print(text, end="")
        console.control(Control(ControlType.CARRIAGE_RETURN))
        self._is_open = True

    def end(self) -> None:
        """Leave the row that is open as it is."""
        if self._is_open:
            stdout().print()

    def close(self) -> None:
        """Clear the row that is open."""
        if self._is_open:
            from rich.control import Control
            from rich.segment import ControlType

            stdout().control(Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2)))
            self._is_open = False

    def update(self, status: TaskStatus) -> None: ...
