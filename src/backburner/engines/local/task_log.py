"""From what a process writes to the lines of a task's log."""

from __future__ import annotations

import json
import re
from typing import Any

from ... import json_text
from ...task import LogLine
from ...task_log_lines import OPERATOR_STREAM, UNFINISHED

#: What a log record begins with where it comes in line with plain output. Up to the newline it is JSON.
RECORD = b"\0log "

#: What is longer comes as several lines.
LONGEST_LINE = 16_384
LONGEST_RECORD = 1 << 20
#: So often a line that overwrites itself is shown as it is.
_UPDATE_EVERY_MS = 1000
_LINE_COST = 64  # in a store, an empty line is not free
_RECORD_STREAM = re.compile(rf"log|{OPERATOR_STREAM}|message[a-z.]{{0,20}}")
_LEVELS = {"stdout": "info", "stderr": "warning"}


class TaskLog:
    """Collects one attempt's output as numbered lines, up to a limit of bytes."""

    def __init__(self, last_seq: int, limit_bytes: int) -> None:
        self._seq = last_seq
        self._left = limit_bytes
        self._partial = {"stdout": b"", "stderr": b""}
        self._shown: dict[str, bytes] = {}
        self._unshown: dict[str, int] = {}  # streams whose unfinished line has changed, and when
        self._show_at = 0
        self._lines: list[LogLine] = []

    def feed(self, stream: str, data: bytes, now: int) -> None:
        """Take raw output; a line is complete at its newline, or when it is too long to wait for one."""
        *lines, rest = (self._partial[stream] + data).split(b"\n")
        begun = b""
        for line in lines:
            text, mark, record = line.partition(RECORD)
            if mark and self._add_record(record, now):
                begun += text  # a line that a record came into the middle of
            else:
                self._add_line(stream, begun + line, now)
                begun = b""
        rest = begun + rest
        if b"\r" in rest and RECORD not in rest:
            rest = self._overwritten(stream, rest, now)
        if len(rest) > (LONGEST_RECORD if RECORD in rest else LONGEST_LINE):
            self._add_line(stream, rest, now)
            rest = b""
        self._partial[stream] = rest

    def _overwritten(self, stream: str, line: bytes, now: int) -> bytes:
        """What is left of a line that overwrites itself, as progress bars do."""
        shown, is_over = _visible(line), not line.rpartition(b"\r")[2].strip()
        if shown != self._shown.get(stream):
            self._unshown[stream] = now
        return b"\r" + shown + (b"\r" if is_over else b"")

    @property
    def show_at(self) -> int | None:
        """When a line that overwrites itself is to be shown next, by the clock of `show_unfinished`."""
        return self._show_at if self._unshown else None

    def show_unfinished(self, now_steady: int) -> None:
        """Add lines that overwrite themselves as they are now, if it is time to."""
        if not self._unshown or now_steady < self._show_at:
            return
        self._show_at = now_steady + _UPDATE_EVERY_MS
        for stream, written_at in self._unshown.items():
            if shown := _visible(self._partial[stream]):
                self._shown[stream] = shown
                self._add(stream, shown, written_at, UNFINISHED)
        self._unshown.clear()

    def _add_line(self, stream: str, line: bytes, now: int) -> None:
        self._unshown.pop(stream, None)
        self._shown.pop(stream, None)
        self._add(stream, _visible(line), now)

    def _add(self, stream: str, line: bytes, now: int, end: str = "") -> None:
        for start in range(0, len(line) or 1, LONGEST_LINE):
            part = line[start : start + LONGEST_LINE]
            self.add(stream, _LEVELS[stream], part.decode("utf-8", "replace") + end, now)

    def _add_record(self, text: bytes, now: int) -> bool:
        try:
            record = json.loads(text)
            ts = min(max(0, int(record["ts"])), now)
            self.add(_stream_of(record), str(record["level"]), str(record["message"]), ts)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return False  # the tool wrote this, and it only looks like a record
        return True

    def add(self, stream: str, level: str, message: str, now: int) -> None:
        if self._left <= 0:
            return
        self._left -= len(message) + _LINE_COST
        if self._left <= 0:
            stream, level, message = "backburner", "warning", "The log is full; what follows is dropped."
        self._seq += 1
        self._lines.append(
            LogLine(self._seq, now, stream, json_text.storable(level), json_text.storable(message))
        )

    def end(self, now: int) -> None:
        """No more will come: what has no newline yet is a line too."""
        for stream, rest in self._partial.items():
            if rest:
                self.feed(stream, b"\n", now)

    def take(self) -> tuple[LogLine, ...]:
        """The lines since the last take."""
        lines, self._lines = tuple(self._lines), []
        return lines


def _visible(line: bytes) -> bytes:
    """What a terminal shows of a line: what was written last, after a carriage return."""
    if b"\r" not in line:
        return line
    return next((part for part in reversed(line.split(b"\r")) if part.strip()), b"")


def _stream_of(record: dict[str, Any]) -> str:
    """What kind of line a record is: no tool may say that it is what was printed, or ours."""
    stream = record.get("stream", "log")
    return stream if isinstance(stream, str) and _RECORD_STREAM.fullmatch(stream) else "log"
