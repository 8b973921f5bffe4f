"""Stdio framing: one message per line, or `Content-Length` headers as in LSP; a server detects which."""

from __future__ import annotations

import codecs
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, get_args

import anyio
import anyio.to_thread
from mcp.server.stdio import stdio_server

if TYPE_CHECKING:
    from typing_extensions import Buffer


Framing = Literal["newline", "lsp"]
FRAMINGS: tuple[Framing, ...] = get_args(Framing)

#: Codec that converts between lines and messages with headers.
ENCODING = "backburner_content_length"


def framed(body: bytes) -> bytes:
    """Return one message with its header, which counts bytes."""
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def content_length(headers: Sequence[bytes]) -> int | None:
    """Return the last length named: earlier lines may be the rest of a broken message."""
    for line in reversed(headers):
        name, _, value = line.partition(b":")
        value = value.strip()
        if name.strip().lower() == b"content-length" and value.isdigit() and len(value) <= 15:
            return int(value)
    return None


class _Decoder(codecs.BufferedIncrementalDecoder):
    """Decodes each message to one line; other input becomes a line that is no JSON."""

    def _buffer_decode(self, given: Buffer, errors: str, final: bool) -> tuple[str, int]:
        data, lines, start = bytes(given), [], 0
        while (message := _message_at(data, start)) is not None:
            body, start = message
            # In JSON a line break can only stand between tokens.
            lines.append(body.decode("utf-8", "replace").replace("\r", " ").replace("\n", " ") + "\n")
        return "".join(lines), start


def _message_at(data: bytes, start: int) -> tuple[bytes, int] | None:
    """Return the message at `start` and the position of the next; None while it is incomplete."""
    while data[start : start + 1] in (b"\r", b"\n"):
        start += 1
    ends = [(at + len(mark), at) for mark in (b"\r\n\r\n", b"\n\n") if (at := data.find(mark, start)) >= 0]
    if not ends:
        return None
    body, end_of_headers = min(ends)
    length = content_length(data[start:end_of_headers].splitlines())
    if length is None:
        return data[start:end_of_headers], body
    return (data[body : body + length], body + length) if len(data) >= body + length else None


def _encode(text: str, errors: str = "strict") -> tuple[bytes, int]:
    return framed(text.removesuffix("\n").encode()), len(text)


def _decode(data: Buffer, errors: str = "strict") -> tuple[str, int]:
    return _Decoder(errors).decode(data, final=True), len(bytes(data))


def _find(name: str) -> codecs.CodecInfo | None:
    if name != ENCODING:
        return None
    return codecs.CodecInfo(_encode, _decode, incrementaldecoder=_Decoder, name=ENCODING)


codecs.register(_find)


_MOST_BYTES = 256 * 1024 * 1024
_LONGEST_LINE = 8192
_MOST_HEADERS = 32
_CHUNK = 1 << 16
#: Beginnings of the line before a message with headers; a message per line begins with `{`.
_HEADERS = (b"content-length:", b"content-type:")
_LONGEST_NAME = max(map(len, _HEADERS))


@asynccontextmanager
async def framed_stdio() -> AsyncIterator[tuple[Any, Any]]:
    """Open stdin and stdout as `mcp.server.stdio.stdio_server` does, in the client's framing.

    While open, what tools print goes to stderr.
    """
    with _taken(0, os.devnull, "rb") as source, _taken(1, None, "wb") as sink:
        # The SDK only iterates, writes and flushes.
        reader: Any = FramedReader(source)
        writer: Any = FramedWriter(sink, lambda: reader.has_headers)
        async with stdio_server(stdin=reader, stdout=writer) as streams:
            yield streams


@contextmanager
def _taken(fd: int, instead: str | None, mode: Literal["rb", "wb"]) -> Iterator[BinaryIO]:
    """Reserve a standard stream for the wire; other code gets `instead`, or stderr."""
    private = os.dup(fd)
    other = os.dup(2) if instead is None else os.open(instead, os.O_RDONLY)
    try:
        os.dup2(other, fd)
    finally:
        os.close(other)
    try:
        # Never closed: a thread may still block in a read when the server ends.
        yield os.fdopen(private, mode, closefd=False)
    finally:
        os.dup2(private, fd)


class FramedReader:
    """Iterates over the messages of a byte stream: lines, and from the first header on messages with headers.

    Invalid input, and a message over `most_bytes`, yields a text that is no JSON, so that the SDK answers
    with a parse error; reading continues at the next header.
    """

    #: True once a header was read: a host may try lines first, and then headers.
    has_headers = False

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
        """Return the next message or an error text; None at the end. Blocks."""
        headers: deque[bytes] = deque(maxlen=_MOST_HEADERS)
        if not self.has_headers:
            while (line := self._source.readline()).isspace():
                pass
            if not line[:_LONGEST_NAME].lower().startswith(_HEADERS):
                return line.decode("utf-8", errors="replace") or None
            self.has_headers = True
            headers.append(line)
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
    """Writes each text as one message: a line, or with its `Content-Length`."""

    def __init__(self, sink: BinaryIO, has_headers: Callable[[], bool]) -> None:
        self._sink = sink
        self._has_headers = has_headers

    async def write(self, text: str) -> None:
        await anyio.to_thread.run_sync(self._write, text.removesuffix("\n").encode())

    def _write(self, body: bytes) -> None:
        self._sink.write(framed(body) if self._has_headers() else body + b"\n")
        self._sink.flush()

    async def flush(self) -> None:
        """Do nothing: `write` flushes."""
