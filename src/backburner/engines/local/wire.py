"""Messages between a supervisor and its runners: JSON lines over a stream socket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Protocol

from ... import json_text

#: Between a supervisor and a zygote, a message is one packet.
LARGEST_MESSAGE = 1 << 16

_CHUNK = 1 << 18
_SHOWN_BYTES = 80


class NotAMessage(ValueError):
    """Why this is nothing that a runner may say."""


def encode(kind: str, body: dict[str, Any]) -> bytes:
    return json.dumps([kind, body], separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> tuple[str, dict[str, Any]]:
    """The message of a line. Raises NotAMessage."""
    try:
        kind, body = json.loads(line)
    except (ValueError, TypeError, RecursionError):
        raise NotAMessage(f"{_shown(line)} is not a message") from None
    if not isinstance(kind, str) or not isinstance(body, dict):
        raise NotAMessage(f"{_shown(line)} is not a message")
    if line.count(b"[") + line.count(b"{") > json_text.MAX_DEPTH and json_text.is_too_deep(body):
        raise NotAMessage(f"{_shown(line)} is nested deeper than {json_text.MAX_DEPTH} levels")
    return kind, body


def _shown(line: bytes) -> str:
    return repr(line if len(line) <= _SHOWN_BYTES else line[:_SHOWN_BYTES] + b"...").removeprefix("b")


class Stream(Protocol):
    def recv(self, size: int, /) -> bytes: ...


class MessageReader:
    """Takes messages from a stream socket, as they arrive. One of more than `largest` bytes is none."""

    def __init__(self, stream: Stream, largest: int | None = None) -> None:
        self._stream = stream
        self._largest = largest
        self._begun: list[bytes] = []
        self._begun_size = 0
        self.dry = self.ended = False

    def read(self) -> list[tuple[str, dict[str, Any]]]:
        """What has arrived; blocks only on a blocking socket. Raises NotAMessage.

        `dry` says that nothing was there, `ended` that nothing will ever be again.
        """
        try:
            data = self._stream.recv(_CHUNK)
        except BlockingIOError:
            self.dry = True
            return []
        except OSError:
            data = b""
        if not data:
            self.dry = self.ended = True
            return []
        self.dry = False
        return [decode(line) for line in self._complete(data)]

    def _complete(self, data: bytes) -> list[bytes]:
        """The lines that are complete with this; what is begun is kept in parts until then."""
        self._begun.append(data)
        self._begun_size += len(data)
        lines: list[bytes] = []
        if b"\n" in data:
            *lines, rest = b"".join(self._begun).split(b"\n")
            self._begun, self._begun_size = [rest], len(rest)
        if self._largest is not None and max(map(len, lines), default=self._begun_size) > self._largest:
            raise NotAMessage(f"a message has at most {self._largest} bytes")
        return lines

    def each(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Messages until the end of the stream, from a blocking socket."""
        while not self.ended:
            yield from self.read()
