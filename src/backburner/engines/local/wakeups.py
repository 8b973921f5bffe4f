"""Signals for a loop that waits on a selector."""

from __future__ import annotations

import contextlib
import selectors
import signal
import socket
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def waking_signals(selector: selectors.BaseSelector, handle: Callable[[], None]) -> Iterator[None]:
    """Call `handle` on SIGTERM and SIGINT, and wake the loop that waits on the selector."""
    reader, writer = socket.socketpair()
    for end in (reader, writer):
        end.setblocking(False)
    stops = (signal.SIGTERM, signal.SIGINT)
    handlers = {number: signal.signal(number, lambda *_: handle()) for number in stops}
    previous = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    selector.register(reader, selectors.EVENT_READ, lambda: reader.recv(4096))
    try:
        yield
    finally:
        signal.set_wakeup_fd(previous)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        reader.close()
        writer.close()
