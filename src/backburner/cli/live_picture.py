"""A picture on the terminal that is drawn anew after each change in a store, until q or Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from .output import stdout

if TYPE_CHECKING:
    from rich.console import RenderableType

    from .place import Place

_REDRAW_S = 0.25
_LOOK_AGAIN_S = 1.0


def show_live(place: Place, picture: Callable[[], RenderableType]) -> None:
    """Show what `picture` gives, a few times a second at most; on a terminal it takes the whole screen."""
    from rich.live import Live

    watch = place.store.watch()
    try:
        with (
            _keys() as keys,
            Live(picture(), console=stdout(), auto_refresh=False, screen=stdout().is_terminal) as live,
        ):
            while True:
                drawn = time.monotonic()
                heard, _, _ = select.select([watch.fileno(), *keys], [], [], _LOOK_AGAIN_S)
                if any(key in heard and os.read(key, 64)[:1] in (b"q", b"") for key in keys):
                    return
                watch.drain()
                watch.mend()
                time.sleep(max(0.0, drawn + _REDRAW_S - time.monotonic()))
                live.update(picture(), refresh=True)
    finally:
        watch.close()


@contextlib.contextmanager
def _keys() -> Iterator[list[int]]:
    """The terminal's keys as they are pressed, without an echo; none where there is no terminal."""
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
