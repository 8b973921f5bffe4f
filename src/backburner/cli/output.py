"""Terminal output: tables, JSON and live views. Untrusted text passes through `printable` or `print_json`."""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from ..core import times
from ..core.logs import text_of
from ..core.text import printable, printable_json

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

    from ..core.lifecycle import State
    from ..core.task import LogLine, Task, TaskError
    from .place import Place


_PIPE_WIDTH = 2000
_MIN_COLUMN_WIDTH = 8
_GAP = 2
_LEVEL_STYLES = {"error": "red", "critical": "red", "warning": "yellow", "debug": "dim"}
_STATE_STYLES = {
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
    """Write JSON to stdout, safe for a terminal. Lone surrogates stay ASCII escapes."""
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
    """Return a console without markup; Rich uses colours only on a terminal and without NO_COLOR."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PIPE_WIDTH
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False, width=width)


def say(text: str, style: str = "") -> None:
    """Write a message to stderr; stdout has only the requested output."""
    if style or sys.stderr.isatty():
        stderr().print(text, style=style, soft_wrap=True)
    else:  # importing rich takes longer than many commands
        print(text, file=sys.stderr, flush=True)


def show(*what: RenderableType) -> None:
    for one in what:
        stdout().print(one, crop=False)


def show_line(line: Text) -> None:
    """Print a line that the terminal wraps, so that it can be copied in one piece."""
    stdout().print(line, soft_wrap=True)


def cell(value: object, style: str = "") -> Text:
    """Return a table cell; None is a dash."""
    from rich.text import Text

    return Text("-" if value is None else printable(value), style=style)


def log_cells(line: LogLine) -> list[Text]:
    """Return a log record as one cell per line."""
    return [cell(text, _LEVEL_STYLES.get(line.level, "")) for text in text_of(line).split("\n")]


def error_line(error: TaskError) -> str:
    """Return an error as `type: exception: message`, without an exception that the rest names already."""
    if not error.exception or error.exception in error.message or error.type == error.exception:
        return f"{error.type}: {error.message}"
    return f"{error.type}: {error.exception}: {error.message}"


def state_cell(state: State) -> Text:
    return cell(state, _STATE_STYLES[state])


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, whole: Sequence[str] = ()) -> Table:
    """Return a plain table with one line per row.

    On a narrow terminal, columns are cut and then dropped from the right. Columns in `whole` stay complete,
    so that their values can be copied.
    """
    from rich.table import Table
    from rich.text import Text

    cells = [[one if isinstance(one, Text) else cell(one) for one in row] for row in rows]
    widths = [max([len(name), *(row[i].cell_len for row in cells)]) for i, name in enumerate(columns)]
    excess = sum(widths) + _GAP * len(columns) - stdout().width
    others = [i for i in reversed(range(len(columns))) if columns[i] not in whole]
    for i in others:
        cut = max(0, min(excess, widths[i] - _MIN_COLUMN_WIDTH))
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
    """Return names and values, one pair per line, without values that are None."""
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
    return "-" if seconds is None else times.span(seconds)


def took_s(task: Task) -> float | None:
    """Return the runtime of a task so far; None before it started."""
    if task.started_at is None:
        return None
    end = task.completed_at if task.completed_at is not None else int(time.time() * 1000)
    return max(0, end - task.started_at) / 1000


def age(ms: int | None) -> str:
    return "-" if ms is None else span(max(0.0, time.time() - ms / 1000))


def moment(ms: int | None) -> str | None:
    """Return a time in the local time zone."""
    return None if ms is None else times.moment(ms).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


_REDRAW_S = 0.25
_REFRESH_S = 1.0


def show_live(place: Place, picture: Callable[[], RenderableType]) -> None:
    """Redraw `picture` after each change, until q or Ctrl-C; on a terminal on a screen of its own."""
    from rich.live import Live

    watch = place.watch()
    try:
        with (
            _keys() as keys,
            Live(picture(), console=stdout(), auto_refresh=False, screen=stdout().is_terminal) as live,
        ):
            while True:
                drawn = time.monotonic()
                ready, _, _ = select.select([watch.fileno(), *keys], [], [], _REFRESH_S)
                if any(key in ready and os.read(key, 64)[:1] in (b"q", b"") for key in keys):
                    return
                watch.drain()
                watch.mend()
                time.sleep(max(0.0, drawn + _REDRAW_S - time.monotonic()))
                live.update(picture(), refresh=True)
    finally:
        watch.close()


@contextlib.contextmanager
def _keys() -> Iterator[list[int]]:
    """Read single keys without echo; yield no file descriptor where there is no terminal."""
    if not (sys.stdin.isatty() and stdout().is_terminal):
        yield []
        return
    keys = sys.stdin.fileno()
    before = termios.tcgetattr(keys)
    try:
        tty.setcbreak(keys)
        yield [keys]
    finally:
        termios.tcsetattr(keys, termios.TCSADRAIN, before)
