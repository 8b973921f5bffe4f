"""From what a process writes to the lines of a task's log."""

from __future__ import annotations

from ...task import LogLine

_LONGEST_LINE = 16_384
_LEVELS = {"stdout": "info", "stderr": "warning"}


class TaskLog:
    """Collects one attempt's output as numbered lines, up to a limit of bytes."""

    def __init__(self, last_seq: int, limit_bytes: int) -> None:
        self._seq = last_seq
        self._left = limit_bytes
        self._partial = {"stdout": b"", "stderr": b""}
        self._lines: list[LogLine] = []

    def feed(self, stream: str, data: bytes, now: int) -> None:
        """Take raw output; a line is complete at its newline, or when it is too long to wait for one."""
        *lines, rest = (self._partial[stream] + data).split(b"\n")
        while len(rest) > _LONGEST_LINE:
            lines.append(rest[:_LONGEST_LINE])
            rest = rest[_LONGEST_LINE:]
        self._partial[stream] = rest
        for line in lines:
            self.add(stream, _LEVELS[stream], line.rstrip(b"\r").decode("utf-8", "replace"), now)

    def add(self, stream: str, level: str, message: str, now: int) -> None:
        if self._left <= 0:
            return
        self._left -= len(message) + 1
        if self._left <= 0:
            stream, level, message = "backburner", "warning", "The log is full; what follows is dropped."
        storable = message.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
        self._seq += 1
        self._lines.append(LogLine(self._seq, now, stream, level, storable))

    def end(self, now: int) -> None:
        """No more will come: what has no newline yet is a line too."""
        for stream, rest in self._partial.items():
            if rest:
                self.feed(stream, b"\n", now)

    def take(self) -> tuple[LogLine, ...]:
        """The lines since the last take."""
        lines, self._lines = tuple(self._lines), []
        return lines
