"""Parts of a task's result: at a path in it, and by ranges of bytes, however long it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..artifacts import ArtifactStore
from ..errors import NoSuchPart
from ..json_path import select
from ..json_shape import shape
from ..result_parts import large_result
from ..service import TaskResult
from .outcomes import error_for_clients

#: No more is read at once, whoever asks.
MOST_BYTES = 1 << 20
#: No file is longer, and no other number can be asked of a file.
FURTHEST = (1 << 63) - 1
#: A path leads through all of a result, which has to be in memory then.
_MOST_FOR_PATHS = 64 << 20


@dataclass(frozen=True)
class Part:
    """What is asked for: of all, or of what is at the path, so many bytes from an offset on."""

    offset: int = 0
    length: int = MOST_BYTES
    path: str | None = None

    def at_most(self, most_bytes: int | None) -> Part:
        return self if most_bytes is None else replace(self, length=min(self.length, most_bytes))


@dataclass(frozen=True)
class Piece:
    """What a part is: its bytes, of so many. `shape` is that of what is at the path."""

    data: bytes
    offset: int
    size: int
    kind: str
    shape: str = ""

    @property
    def text(self) -> str:
        """Without a character that its end cuts in two: that is left to the next piece."""
        return self.data.decode("utf-8", "ignore" if len(self.data) < self.size else "replace")

    @property
    def is_whole(self) -> bool:
        return len(self.data) == self.size

    @property
    def place(self) -> dict[str, int]:
        """Where it lies. What follows begins at `offset` + `length`."""
        return {"offset": self.offset, "length": len(self.text.encode()), "size": self.size}


def piece_of(data: bytes, part: Part, kind: str, shape: str = "") -> Piece:
    """Raises NoSuchPart for a range beyond the end."""
    check_offset(part, len(data))
    return Piece(data[part.offset : part.offset + part.length], part.offset, len(data), kind, shape)


def check_offset(part: Part, size: int) -> None:
    if part.offset > size:
        raise NoSuchPart(path=f"byte {part.offset}", reason=f"it is {size} bytes long")


def piece_of_result(outcome: TaskResult, part: Part, files: ArtifactStore) -> Piece:
    """A part of the outcome as JSON; what a path leads to is a text as itself, and anything else as JSON.

    Raises NoSuchPart, and as who reads `files` does, where a large result is.
    """
    task = outcome.task
    large = large_result(task, outcome.artifacts)
    error = error_for_clients(task, task.error)
    value = task.result if error is None else {"error": error.to_dict()}
    if part.path is None:
        if large is None:
            return piece_of(_json(value), part, "application/json")
        check_offset(part, large.size_bytes)
        data = files.read(large, part.offset, part.length)
        return Piece(data, part.offset, large.size_bytes, "application/json")
    if large is not None:
        if large.size_bytes > _MOST_FOR_PATHS:
            reason = f"the result is {large.size_bytes} bytes long, and only its bytes can be read"
            raise NoSuchPart(path=part.path, reason=reason)
        value = json.loads(files.read(large))
    found = select(value, part.path)
    if isinstance(found, str):
        return piece_of(found.encode(), part, "text/plain", shape(found))
    return piece_of(_json(found), part, "application/json", shape(found))


def part_in(asked: Mapping[str, Any]) -> Part:
    """The part that a query or a call asks for by `offset`, `length` and `path`. Raises NoSuchPart."""
    try:
        offset, length = int(asked.get("offset") or 0), int(asked.get("length") or MOST_BYTES)
    except ValueError:
        raise NoSuchPart(path="such range", reason="offset and length must be whole numbers") from None
    if not 0 <= offset <= FURTHEST or length < 1:
        reason = f"offset must be from 0 to {FURTHEST} and length at least 1"
        raise NoSuchPart(path="such range", reason=reason)
    return Part(offset, min(length, MOST_BYTES), asked.get("path"))


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()
