"""Signals for a loop that waits on a selector."""

from __future__ import annotations

import contextlib
import selectors
import signal
import socket
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def waking_signals(selector: selectors.BaseSelector, handle: Callable[[], None]) -> Iterator[None]:
    """Wake the loop that waits on the selector for each SIGTERM and SIGINT; there it calls `handle`.

    So nothing that the loop does is ever interrupted in the middle.
    """
    reader, writer = socket.socketpair()
    for end in (reader, writer):
        end.setblocking(False)
    stops = (signal.SIGTERM, signal.SIGINT)

    def take() -> None:
        for number in reader.recv(4096):
            if number in stops:
                handle()

    handlers = {number: signal.signal(number, lambda *_: None) for number in stops}
    previous = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    selector.register(reader, selectors.EVENT_READ, take)
    try:
        yield
    finally:
        signal.set_wakeup_fd(previous)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        reader.close()
        writer.close()
