"""Messages over stdio: one on each line, or each after a `Content-Length` header as in LSP."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, BinaryIO, Literal

import anyio
import anyio.to_thread
from mcp.server.stdio import stdio_server

from ..content_length import content_length, framed

_MOST_BYTES = 256 * 1024 * 1024
_LONGEST_LINE = 8192
_MOST_HEADERS = 32
_CHUNK = 1 << 16


@asynccontextmanager
async def lsp_stdio() -> AsyncIterator[tuple[Any, Any]]:
    """The read and write streams of a server on this process's stdin and stdout, with headers as in LSP.

    Use it as `mcp.server.stdio.stdio_server`, which does all of it but the framing. While it is
    open, what tools print goes to stderr.
    """
    with _taken(0, os.devnull, "rb") as source, _taken(1, None, "wb") as sink:
        # The SDK asks of these no more than to iterate over messages, to write one and to flush.
        reader: Any = FramedReader(source)
        writer: Any = FramedWriter(sink)
        async with stdio_server(stdin=reader, stdout=writer) as streams:
            yield streams


@contextmanager
def _taken(fd: int, instead: str | None, mode: Literal["rb", "wb"]) -> Iterator[BinaryIO]:
    """A standard stream for the wire alone: everybody else finds `instead` there, or stderr."""
    private = os.dup(fd)
    other = os.dup(2) if instead is None else os.open(instead, os.O_RDONLY)
    try:
        os.dup2(other, fd)
    finally:
        os.close(other)
    try:
        # Never closed: a thread may still wait in a read when the server ends.
        yield os.fdopen(private, mode, closefd=False)
    finally:
        os.dup2(private, fd)


class FramedReader:
    """The messages of a byte stream with `Content-Length` headers, as texts, by `async for`.

    What is no message comes as a text that is no JSON, so that the reader of the texts answers
    with a parse error; the reading goes on at the next header. A message over `most_bytes` is
    passed over in the same way.
    """

    def __init__(self, source: BinaryIO, *, most_bytes: int = _MOST_BYTES) -> None:
        self._source = source
        self._most_bytes = most_bytes

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        message = await anyio.to_thread.run_sync(self.read)
        if message is None:
            raise StopAsyncIteration
        return message

    def read(self) -> str | None:
        """The next message, or the words that say why there is none; None at the end. Blocks."""
        headers: deque[bytes] = deque(maxlen=_MOST_HEADERS)
        while line := self._source.readline(_LONGEST_LINE):
            if line.strip():
                headers.append(line)
            elif headers:
                break
        if not line:
            return None
        length = content_length(headers)
        if length is None:
            return "A message without a valid Content-Length header"
        if length > self._most_bytes:
            self._skip(length)
            return f"A message of {length} bytes, which is more than {self._most_bytes}"
        body = self._source.read(length)
        return None if len(body) < length else body.decode("utf-8", errors="replace")

    def _skip(self, length: int) -> None:
        while length > 0 and (skipped := self._source.read(min(length, _CHUNK))):
            length -= len(skipped)


class FramedWriter:
    """Writes each text as one message with its `Content-Length`, which counts bytes."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink

    async def write(self, text: str) -> None:
        await anyio.to_thread.run_sync(self._write, text.removesuffix("\n").encode())

    def _write(self, body: bytes) -> None:
        self._sink.write(framed(body))
        self._sink.flush()

    async def flush(self) -> None:
        """Each message is on its way already."""
