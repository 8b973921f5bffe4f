"""For queues that keep no results: a task tells when it began, through a pipe, to whoever submitted it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct

NUMBERS = struct.Struct("qq")  # which task, and when it began
_ROOM = 1 << 20  # for 65,536 of them, so that no task waits until it is read


class Told:
    """Both ends of a named pipe. A fork may write to it as well: what is so short is written whole."""

    def __init__(self, path: str) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path)
        self._pipe = os.open(path, os.O_RDWR)  # so that it never ends
        fcntl.fcntl(self._pipe, fcntl.F_SETPIPE_SZ, _ROOM)
        self._began: dict[int, int] = {}

    def tell(self, number: int, began: int) -> None:
        os.write(self._pipe, NUMBERS.pack(number, began))

    def hear(self, number: int) -> int:
        """When that task began, as soon as it is told."""
        while number not in self._began:
            told, began = NUMBERS.unpack(os.read(self._pipe, NUMBERS.size))
            self._began[told] = began
        return self._began[number]
