"""Ctrl-C of a server over stdio: one is enough."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def until_interrupted() -> Iterator[threading.Event]:
    """Have Ctrl-C look as if the client had gone, so that one is enough; the event says that it came.

    The server reads its input on a thread that nothing but the end of the input wakes. So it reads from
    a pipe, into which another thread passes on what comes, and which Ctrl-C closes.
    """
    interrupted = threading.Event()
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # Ctrl-C is somebody else's affair
        yield interrupted
        return
    given, (reads, writes), nowhere = os.dup(0), os.pipe(), os.open(os.devnull, os.O_WRONLY)
    os.dup2(reads, 0)
    os.close(reads)

    def end_of_input() -> None:
        os.dup2(nowhere, writes, inheritable=False)  # a number that is free would be used again

    def pass_on() -> None:
        with suppress(OSError):
            while some := os.read(given, 65536):
                while some:
                    some = some[os.write(writes, some) :]
        end_of_input()

    def interrupt(*_: object) -> None:
        interrupted.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        end_of_input()

    threading.Thread(target=pass_on, daemon=True).start()
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
