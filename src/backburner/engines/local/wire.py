"""Messages between a supervisor and its runners: JSON lines over a stream socket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Protocol

#: Between a supervisor and a zygote, a message is one packet.
LARGEST_MESSAGE = 1 << 16

_CHUNK = 1 << 18


def encode(kind: str, body: dict[str, Any]) -> bytes:
    return json.dumps([kind, body], separators=(",", ":")).encode() + b"\n"


class Stream(Protocol):
    def recv(self, size: int, /) -> bytes: ...


class MessageReader:
    """Takes whole messages out of a stream."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._rest = b""
        self.dry = self.ended = False

    def read(self) -> list[tuple[str, dict[str, Any]]]:
        """What has arrived; blocks only on a blocking socket. Raises ValueError for what is no message.

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
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [(kind, body) for kind, body in map(json.loads, lines)]

    def each(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Messages until the end of the stream, from a blocking socket."""
        while not self.ended:
            yield from self.read()
