"""What a worker and the door say to each other: records as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

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
