"""Writing to a terminal or a pipe. Text that is not ours goes out through `printable` or `print_json`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from .. import times
from ..task_log_lines import text_of
from ..terminal_text import printable, printable_json

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

    from ..lifecycle import State
    from ..task import LogLine, Task, TaskError

_PIPE_WIDTH = 2000
_NARROWEST = 8
_GAP = 2
_LEVELS = {"error": "red", "critical": "red", "warning": "yellow", "debug": "dim"}
_STYLES = {
    "queued": "dim",
    "scheduled": "cyan",
    "running": "cyan",
    "input_required": "magenta",
    "cancel_requested": "yellow",
    "cancelling": "yellow",
    "succeeded": "green",
    "failed": "red",
    "timed_out": "red",
    "cancelled": "yellow",
    "expired": "dim",
}


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Write JSON to stdout; safe on a terminal, and with lone surrogates still ASCII escapes."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    sys.stdout.write(printable_json(text) + "\n")
    sys.stdout.flush()


@cache
def stdout() -> Console:
    return _console(stderr=False)


@cache
def stderr() -> Console:
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    """Colours only on a terminal and without NO_COLOR (rich sees to both); nothing in text is markup."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PIPE_WIDTH
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False, width=width)


def say(text: str, style: str = "") -> None:
    """A line for the person at the terminal: to stderr, so that stdout holds only what was asked for."""
    if style or sys.stderr.isatty():
        stderr().print(text, style=style, soft_wrap=True)
    else:  # rich would do the same, and takes longer to import than many a verb to run
        print(text, file=sys.stderr, flush=True)


def show(*what: RenderableType) -> None:
    for one in what:
        stdout().print(one, crop=False)


def show_line(line: Text) -> None:
    """A line that the terminal wraps, so that what is copied from it stays in one piece."""
    stdout().print(line, soft_wrap=True)


def cell(value: object, style: str = "") -> Text:
    """A value for a table; None is a dash."""
    from rich.text import Text

    return Text("-" if value is None else printable(value), style=style)


def log_cells(line: LogLine) -> list[Text]:
    """What a task logged, a cell for each of its lines."""
    return [cell(text, _LEVELS.get(line.level, "")) for text in text_of(line).split("\n")]


def error_line(error: TaskError) -> str:
    """An error in one line: its type, the class of the exception, unless the message names it, and that."""
    if not error.exception or error.exception in error.message or error.type == error.exception:
        return f"{error.type}: {error.message}"
    return f"{error.type}: {error.exception}: {error.message}"


def state_cell(state: State) -> Text:
    return cell(state, _STYLES[state])


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, whole: Sequence[str] = ()) -> Table:
    """A plain table, a line for each row. On a narrow terminal columns not in `whole` are cut, then left out.

    Those in `whole` are never cut: what is copied from them must work.
    """
    from rich.table import Table
    from rich.text import Text

    cells = [[one if isinstance(one, Text) else cell(one) for one in row] for row in rows]
    widths = [max([len(name), *(row[i].cell_len for row in cells)]) for i, name in enumerate(columns)]
    excess = sum(widths) + _GAP * len(columns) - stdout().width
    others = [i for i in reversed(range(len(columns))) if columns[i] not in whole]
    for i in others:
        cut = max(0, min(excess, widths[i] - _NARROWEST))
        widths[i], excess = widths[i] - cut, excess - cut
    shown = list(range(len(columns)))
    for i in others:
        if excess > 0:
            shown.remove(i)
            excess -= widths[i] + _GAP
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    made.width = sum(widths[i] + _GAP for i in shown) - _GAP
    for i in shown:
        made.add_column(columns[i], no_wrap=True, overflow="ellipsis", width=widths[i])
    for row in cells:
        made.add_row(*(row[i] for i in shown))
    return made


def field_table(fields: Iterable[tuple[str, object]]) -> Table:
    """Names and values, one pair a line, without those that are None."""
    from rich.table import Table
    from rich.text import Text

    made = Table.grid(padding=(0, 2))
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in fields:
        if value is not None:
            made.add_row(name, value if isinstance(value, Text) else cell(value))
    return made


def span(seconds: float | None) -> str:
    """A length of time for a table; None is a dash."""
    return "-" if seconds is None else times.span(seconds)


def took_s(task: Task) -> float | None:
    """How long a task ran, or runs by now; None before it began."""
    if task.started_at is None:
        return None
    end = task.completed_at if task.completed_at is not None else int(time.time() * 1000)
    return max(0, end - task.started_at) / 1000


def age(ms: int | None) -> str:
    """How long ago a moment was."""
    return "-" if ms is None else span(max(0.0, time.time() - ms / 1000))


def moment(ms: int | None) -> str | None:
    """A time as the person's clock shows it."""
    if ms is None:
        return None
    return times.moment(ms).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def size(count: float) -> str:
    """A number of bytes in the unit that a person would use."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
