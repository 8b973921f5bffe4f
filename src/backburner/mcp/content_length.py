"""`Content-Length` headers before messages, as in LSP. For the SDK's stdio client they are an encoding."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from typing_extensions import Buffer

Framing = Literal["newline", "lsp"]
FRAMINGS: tuple[Framing, ...] = get_args(Framing)

#: The name of the encoding: lines of text on our side, messages with headers on the server's.
ENCODING = "backburner_content_length"


def framed(body: bytes) -> bytes:
    """One message with its header, which counts bytes."""
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def content_length(headers: Sequence[bytes]) -> int | None:
    """The last length that is named: what stands before it may be the rest of something broken."""
    for line in reversed(headers):
        name, _, value = line.partition(b":")
        value = value.strip()
        if name.strip().lower() == b"content-length" and value.isdigit() and len(value) <= 15:
            return int(value)
    return None


class _Decoder(codecs.BufferedIncrementalDecoder):
    """Each message becomes a line. What is none becomes a line too, which its reader finds to be no JSON."""

    def _buffer_decode(self, given: Buffer, errors: str, final: bool) -> tuple[str, int]:
        data, lines, start = bytes(given), [], 0
        while (message := _message_at(data, start)) is not None:
            body, start = message
            # In JSON a line break can only stand between tokens.
            lines.append(body.decode("utf-8", "replace").replace("\r", " ").replace("\n", " ") + "\n")
        return "".join(lines), start


def _message_at(data: bytes, start: int) -> tuple[bytes, int] | None:
    """The message that begins at `start`, and where the next begins; None while it is not there in full."""
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
