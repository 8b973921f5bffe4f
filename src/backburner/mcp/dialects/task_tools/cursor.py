"""What a caller was told of its tasks, in a cursor that it carries itself: no server has to remember it.

Eight characters a task. It is not signed: who makes one up is told of its own tasks once more, or once less.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from hashlib import blake2b

from ....errors import InvalidCursor
from ....lifecycle import State
from ....service import TaskStatus
from ....task import TaskHead
from ...progress_tokens import ProgressUpdate

_TASK_BYTES, _TOLD_BYTES = 4, 2
#: The bit that says that a task was told to be over: that one must not be lost to a chance.
_OVER = 0x80
_STEPS = 4


class Told:
    """What was told of each task; of most callers nothing yet."""

    def __init__(self, told: Mapping[bytes, bytes]) -> None:
        self._told = dict(told)

    @classmethod
    def in_cursor(cls, cursor: str | None) -> Told:
        """Raises InvalidCursor."""
        if not cursor:
            return cls({})
        each = _TASK_BYTES + _TOLD_BYTES
        try:
            packed = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
        except (ValueError, binascii.Error):
            raise InvalidCursor from None
        if len(packed) % each:
            raise InvalidCursor
        parts = (packed[at : at + each] for at in range(0, len(packed), each))
        return cls({part[:_TASK_BYTES]: part[_TASK_BYTES:] for part in parts})

    def cursor(self) -> str:
        packed = b"".join(task + told for task, told in self._told.items())
        return base64.b64encode(packed, altchars=b"-_").decode()

    def has_end_of(self, head: TaskHead) -> bool:
        """Whether the end of a finished task was told."""
        return self._told.get(_task(head.task_id)) == _end(head.state, head.attempt)

    def has(self, status: TaskStatus) -> bool:
        """Whether the task was told to be as it is now, but for small steps of its progress."""
        return self._told.get(_task(status.task_id)) == _now(status)

    def add(self, status: TaskStatus) -> None:
        self._told[_task(status.task_id)] = _now(status)


def _now(status: TaskStatus) -> bytes:
    task = status.task
    if task.finished:
        return _end(task.state, task.attempt)
    done = ProgressUpdate.of(task.progress).part or 0.0
    phase = task.progress.phase if task.progress else None
    asked = sorted(question.key for question in status.questions)
    told = bytearray(_digest(repr((str(task.state), task.attempt, phase, int(done * _STEPS), asked))))
    told[0] &= ~_OVER
    return bytes(told)


def _end(state: State, attempt: int) -> bytes:
    told = bytearray(_digest(f"{state} {attempt}"))
    told[0] |= _OVER
    return bytes(told)


def _task(task_id: str) -> bytes:
    return blake2b(task_id.encode(), digest_size=_TASK_BYTES).digest()


def _digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=_TOLD_BYTES).digest()
