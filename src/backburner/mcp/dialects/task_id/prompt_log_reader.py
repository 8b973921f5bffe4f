"""Reading a log that others append to: each line once, and through rotation and truncation."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .wire import result_prompt

logger = logging.getLogger(__name__)

_CHUNK = 1 << 20
_CHUNKS_AT_ONCE = 8
_TAIL = 256


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a log: the file, the offset of a line, and the bytes before it, to know it again by."""

    inode: int
    offset: int
    tail: str = ""

    to_dict = asdict


class LogTail:
    """Reads the whole lines that are new since last time. Not safe for threads."""

    def __init__(self, path: Path, position: Position | None = None) -> None:
        self._path = path
        self._start = position
        self._descriptor: int | None = None
        self._inode = 0
        self._offset = 0  # of the first byte that was not read
        self._line = bytearray()  # read, but its end is not written yet
        self._tail = b""  # the last bytes before that line
        self._seen: tuple[int, int] | None = None  # the length and time of the file that we looked at last
        #: How much was read in all, to show that nothing is read twice.
        self.bytes_read = 0

    @property
    def position(self) -> Position | None:
        """Where the next line begins; None if there was no file yet."""
        if self._descriptor is None:
            return self._start
        return Position(self._inode, self._offset - len(self._line), self._tail.hex())

    def skip_to_end(self) -> None:
        """Pass over what is there already."""
        if self._descriptor is None and not self._open():
            return
        assert self._descriptor is not None, "it was opened"
        self._line.clear()
        self._offset = os.fstat(self._descriptor).st_size
        self._tail = self._bytes(min(_TAIL, self._offset), max(0, self._offset - _TAIL))

    def lines(self) -> tuple[list[bytes], bool]:
        """Some new lines, and whether there may be more at once."""
        if self._descriptor is None and not self._open():
            return [], False
        assert self._descriptor is not None, "it was opened"
        # Looked at before reading: what was written before the rotation is read before it is followed.
        rotated = self._is_rotated()
        self._notice_truncation()
        chunk = self._bytes(_CHUNK, self._offset)
        if chunk:
            return self._split(chunk), True
        if rotated:
            self.close()
            return [], self._open()
        return [], False

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = self._start = None

    def _open(self) -> bool:
        path, at = self._path, self._start
        if at is not None:
            path = self._where_inode(at.inode) or path
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        self._inode = os.fstat(self._descriptor).st_ino
        known = at is not None and at.inode == self._inode
        self._offset = at.offset if at is not None and known else 0
        self._tail = bytes.fromhex(at.tail) if at is not None and known else b""
        self._line.clear()
        self._seen = None
        return True

    def _where_inode(self, inode: int) -> Path | None:
        """The file that we read last, under the name that it may have been rotated to."""
        with contextlib.suppress(OSError):
            for entry in os.scandir(self._path.parent):
                if entry.name.startswith(self._path.name) and entry.inode() == inode:
                    return Path(entry.path)
        return None

    def _is_rotated(self) -> bool:
        try:
            return self._path.stat().st_ino != self._inode
        except FileNotFoundError:
            return False  # the new one is not there yet

    def _notice_truncation(self) -> None:
        """Begin again if the file is shorter than it was, or another text stands where we were.

        A new file may have the number of the old one, and its length too: only an unchanged time says that
        nothing is new.
        """
        assert self._descriptor is not None
        found = os.fstat(self._descriptor)
        size = found.st_size
        if self._seen == (size, found.st_mtime_ns):
            return
        self._seen = size, found.st_mtime_ns
        begin = self._offset - len(self._line) - len(self._tail)
        if size < self._offset or self._bytes(len(self._tail), begin) != self._tail:
            self._offset, self._tail = 0, b""
            self._line.clear()

    def _bytes(self, count: int, offset: int) -> bytes:
        assert self._descriptor is not None
        read = os.pread(self._descriptor, count, offset)
        self.bytes_read += len(read)
        return read

    def _split(self, chunk: bytes) -> list[bytes]:
        self._offset += len(chunk)
        end = chunk.rfind(b"\n") + 1
        if end == 0:
            self._line += chunk
            return []
        whole = bytes(self._line) + chunk[:end]
        self._line = bytearray(chunk[end:])
        self._tail = (self._tail + whole)[-_TAIL:] if len(whole) < _TAIL else whole[-_TAIL:]
        return whole.split(b"\n")[:-1]


class PromptLogReader:
    """Tells of the result prompts in a `ui-prompts.jsonl`: one reader, however many wait for theirs."""

    def __init__(
        self,
        path: Path,
        position: Position | None,
        on_results: Callable[[dict[str, dict[str, Any]]], Any],
        *,
        poll_s: float,
    ) -> None:
        """`on_results` gets the prompts by their request ids; it is awaited before reading goes on."""
        self._tail = LogTail(path, position)
        self._on_results = on_results
        self._poll_s = poll_s
        self._reader: asyncio.Future[None] | None = None
        self._lock = asyncio.Lock()

    @property
    def position(self) -> Position | None:
        return self._tail.position

    @property
    def bytes_read(self) -> int:
        return self._tail.bytes_read

    async def skip_to_end(self) -> None:
        async with self._lock:
            await asyncio.to_thread(self._tail.skip_to_end)

    def read_while(self, wanted: Callable[[], bool]) -> None:
        """See to it that somebody reads, for as long as anything is wanted."""
        if self._reader is None or self._reader.done():
            self._reader = asyncio.ensure_future(self._read(wanted))

    async def close(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        async with self._lock:
            self._tail.close()

    async def _read(self, wanted: Callable[[], bool]) -> None:
        while wanted():
            try:
                async with self._lock:
                    found, more = await asyncio.to_thread(self._read_some)
            except OSError as error:
                logger.warning("The prompt log cannot be read now: %s", error)
                found, more = {}, False
            if found:
                await self._on_results(found)
            if not more:
                await asyncio.sleep(self._poll_s)

    def _read_some(self) -> tuple[dict[str, dict[str, Any]], bool]:
        found: dict[str, dict[str, Any]] = {}
        more = False
        for _ in range(_CHUNKS_AT_ONCE):
            lines, more = self._tail.lines()
            for line in lines:
                found.update(result_prompt(line))
            if not more:
                break
        return found, more
