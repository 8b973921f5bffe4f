"""What a worker and the door say to each other: who may come in, and records as JSON."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from itsdangerous import BadData, URLSafeSerializer
from pydantic import TypeAdapter

from ..errors import InvalidRequest
from ..reports import Change
from ..store import Lease, LeaseView
from ..task import InputRequest, Task, TaskHead, Worker

PATH = "/worker/v1"

LEASE, TASK, HEAD = TypeAdapter(Lease | None), TypeAdapter(Task), TypeAdapter(TaskHead)
VIEWS, WORKERS = TypeAdapter(list[LeaseView]), TypeAdapter(list[Worker])
REQUESTS = TypeAdapter(list[InputRequest])
_CHANGES: dict[str, TypeAdapter[Any]] = {kind.__name__: TypeAdapter(kind) for kind in get_args(Change)}


@dataclass(frozen=True, slots=True)
class Pass:
    """What a worker may come in for: one task, as one supervisor, until then (milliseconds)."""

    task_id: str
    supervisor_id: str
    until: int


class Passes:
    """Makes and reads passes; they are signed with the store's secret."""

    def __init__(self, secret: bytes) -> None:
        self._signer: Any = URLSafeSerializer(secret, salt="backburner.worker")

    def made_for(self, task_id: str, valid_s: float) -> str:
        supervisor_id = f"sup_{secrets.token_hex(4)}_{secrets.token_hex(4)}"
        return str(self._signer.dumps([task_id, supervisor_id, int((time.time() + valid_s) * 1000)]))

    def read(self, token: str) -> Pass | None:
        """None for one that is not good, or not any more."""
        try:
            found = Pass(*self._signer.loads(token))
        except (BadData, TypeError, ValueError):
            return None
        return found if found.until > time.time() * 1000 else None


def changes_out(changes: Sequence[Change]) -> list[Any]:
    return [
        [type(each).__name__, _CHANGES[type(each).__name__].dump_python(each, mode="json")]
        for each in changes
    ]


def changes_in(said: Any) -> list[Change]:
    """Raises InvalidRequest."""
    try:
        return [_CHANGES[kind].validate_python(body) for kind, body in said]
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidRequest(reason=f"a worker reported what cannot be read: {error}") from None
