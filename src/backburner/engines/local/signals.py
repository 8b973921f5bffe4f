"""Signals for a loop that waits on a selector."""

from __future__ import annotations

import contextlib
import selectors
import signal
import socket
from collections.abc import Callable, Iterator, Mapping


@contextlib.contextmanager
def waking_signals(
    selector: selectors.BaseSelector, handle: Mapping[signal.Signals, Callable[[], None]]
) -> Iterator[Callable[[], None]]:
    """Wake the loop that waits on the selector for each of these signals; there it calls what handles it.

    So nothing that the loop does is ever interrupted in the middle. Gives what handles those that have come
    so far, for a loop that must know of them before it looks at all else.
    """
    reader, writer = socket.socketpair()
    for end in (reader, writer):
        end.setblocking(False)

    def take() -> None:
        with contextlib.suppress(BlockingIOError):
            for number in reader.recv(4096):
                if number in handle:
                    handle[signal.Signals(number)]()

    handlers = {number: signal.signal(number, lambda *_: None) for number in handle}
    previous = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    selector.register(reader, selectors.EVENT_READ, take)
    try:
        yield take
    finally:
        signal.set_wakeup_fd(previous)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        reader.close()
        writer.close()
