"""Mapping between records and rows, and the only list of a task's columns.

A field of a new task that has no column here is stored in `extra_json`, so adding one changes nothing here
unless its value is not plain JSON.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, TypeVar

from ...core import json_text
from ...core.lifecycle import Signal, State, next_state
from ...core.retry import Retry
from ...core.task import (
    Answer,
    Attempt,
    Caller,
    Event,
    InputRequest,
    LogLine,
    NewTask,
    Progress,
    Resources,
    Task,
    TaskError,
)
from .transaction import Row

T = TypeVar("T")
decode, encode = json_text.decode, json_text.encode

#: The `ready_at` of a task that waits for something else than a time.
NEVER = 9_000_000_000_000_000


# -- records in general --------------------------------------------------------------------------


@cache
def fields_of(record: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(record).parameters)


def values_of(record: Any) -> dict[str, Any]:
    kind: Callable[..., Any] = type(record)
    return {name: getattr(record, name) for name in fields_of(kind)}


def by_name(row: Row) -> dict[str, Any]:
    """Return the row as a dict. A `sqlite3.Row` searches its columns at each access, which is slow."""
    return row if isinstance(row, dict) else dict(zip(row.keys(), tuple(row), strict=True))


def record(kind: Callable[..., T], row: Row, **decoded: Any) -> T:
    """Make a record of the columns with the names of its fields; `decoded` replaces some of them."""
    return kind(**{name: decoded[name] if name in decoded else row[name] for name in fields_of(kind)})


# -- tasks ---------------------------------------------------------------------------------------

#: Columns that are written with a new task: the fields of NewTask with these names.
_SUBMITTED = (
    *("task_id", "owner", "tool_name", "target", "external_id", "parent_id", "idempotency_key"),
    *("inputs_json", "inputs_hash", "queue", "priority", "share", "traceparent", "hint_s", "estimate_s"),
    *("ttl_s", "submitted_at", "expires_at", "webhooks_json"),
)
#: Columns that the lifecycle of a task sets.
_LIFECYCLE = {
    *("seq", "attempt", "failures", "max_attempts", "started_at", "completed_at", "timeout_at"),
    *("worker_id", "cancel_reason"),
}
#: Columns that some statements join or compute.
_JOINED = ("heartbeat_at", "waits_for", "unstarted")


@lru_cache(maxsize=256)
def retry(text: str) -> Retry:
    policy = decode(text)
    return Retry(**{**policy, "on": tuple(policy["on"])})


@lru_cache(maxsize=256)
def _resources(text: str) -> Resources:
    return Resources(**decode(text))


@lru_cache(maxsize=256)
def _tags(text: str) -> tuple[str, ...]:
    return tuple(decode(text))


def _error(text: str | None) -> TaskError | None:
    return TaskError.from_dict(decode(text)) if text else None


#: The other fields of Task: the column, and its decoder. A column that a statement leaves out is not set.
_DECODED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "state": ("state", State),
    "updated_at": ("changed_at", int),
    "retry": ("retry_json", retry),
    "resources": ("resources_json", _resources),
    "tags": ("tags_json", _tags),
    "inputs": ("inputs_json", decode),
    "ready_at": ("ready_at", lambda at: None if at == NEVER else at),
    "cancel_requested": ("cancel_requested", bool),
    "progress": ("progress_json", lambda text: Progress.from_dict(decode(text)) if text else None),
    "result": ("result_json", decode),
    "error": ("error_json", _error),
    "metrics": ("metrics_json", lambda text: decode(text) or {}),
}
_PLAIN = tuple(name for name in fields_of(Task) if name in _LIFECYCLE or name in _SUBMITTED)

#: Fields that other columns or tables have.
_ELSEWHERE = {*_SUBMITTED, *_DECODED, "limits", "concurrency_key", "handed_to"}
_EXTRA = tuple(name for name in fields_of(NewTask) if name not in _ELSEWHERE)
_DEFAULTS = NewTask(
    task_id="", owner="", tool_name="", inputs_json="", inputs_hash="", queue="", submitted_at=0
)
#: Encoder and decoder of extra fields that are not plain JSON.
_EXTRA_CODECS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "answers": (
        lambda answers: {key: answer.to_dict() for key, answer in answers.items()},
        lambda answers: {key: Answer.from_dict(answer) for key, answer in answers.items()},
    ),
    "caller": (lambda caller: caller.to_dict(), Caller.from_dict),
}

_NOT_LISTED = {"inputs_json", "result_json", "progress_json", "changed_at"}
#: The columns of `tasks` in lists, and those of an INSERT.
LISTED = (*_PLAIN, "extra_json", *(column for column, _ in _DECODED.values() if column not in _NOT_LISTED))
INSERTED = (
    *_SUBMITTED,
    *("state", "attempt", "worker_id", "updated_at", "max_attempts", "inputs_bytes"),
    *("tags_json", "resources_json", "retry_json", "extra_json"),
)


def new_task(new: NewTask, now: int, worker: str | None) -> dict[str, Any]:
    """Return the parameters of `insert_task`, for a queued task or one leased to `worker`."""
    leased = worker is not None
    return {
        **{name: getattr(new, name) for name in _SUBMITTED},
        "state": next_state(State.QUEUED, Signal.CLAIM) if leased else State.QUEUED,
        "attempt": int(leased),
        "worker_id": worker,
        "updated_at": now if leased else new.submitted_at,
        "max_attempts": new.retry.max_attempts,
        "inputs_bytes": len(new.inputs_json),
        "tags_json": encode(list(new.tags)),
        "resources_json": _sparse(new.resources),
        "retry_json": _sparse(new.retry),
        "extra_json": _extra_json(new),
    }


@lru_cache(maxsize=256)
def _sparse(record: Resources | Retry) -> str:
    return encode({name: value for name, value in values_of(record).items() if value is not None})


def _extra_json(new: NewTask) -> str:
    extra = {name: value for name in _EXTRA if (value := getattr(new, name)) != getattr(_DEFAULTS, name)}
    if all(isinstance(value, str) for value in extra.values()):
        return _encode_texts(tuple(extra.items()))
    for name in extra.keys() & _EXTRA_CODECS.keys():
        extra[name] = _EXTRA_CODECS[name][0](extra[name])
    return encode(extra)


@lru_cache(maxsize=256)
def _encode_texts(texts: tuple[tuple[str, str], ...]) -> str:
    return encode(dict(texts))


# The same few short texts come again and again.
_SHORT = 150


def _decode_extra(text: str) -> dict[str, Any]:
    extra: dict[str, Any] = decode(text)
    for name in extra.keys() & _EXTRA_CODECS.keys():
        extra[name] = _EXTRA_CODECS[name][1](extra[name])
    return extra


_decode_short_extra = lru_cache(maxsize=256)(_decode_extra)


def extra_of(text: str) -> dict[str, Any]:
    """Return the fields in an `extra_json`."""
    return _decode_short_extra(text) if len(text) <= _SHORT else _decode_extra(text)


def task(row: Row) -> Task:
    row = by_name(row)
    values = {name: row[name] for name in _PLAIN}
    for name, (column, decoded) in _DECODED.items():
        if column in row:
            values[name] = decoded(row[column])
    for name in _JOINED:
        if name in row:
            values[name] = row[name]
    return Task(**values, **extra_of(row["extra_json"]))


# -- other records -------------------------------------------------------------------------------


def cancel_error(reason: str | None, otherwise: TaskError | None) -> TaskError | None:
    """Return the error of a cancelled task: the reason of the cancel, if there is one."""
    return TaskError("cancelled", f"Cancelled: {reason}") if reason else otherwise


def metrics_json(metrics: Mapping[str, Any] | None) -> str | None:
    return encode(dict(metrics)) if metrics else None


def error_json(error: TaskError | None) -> str | None:
    return None if error is None else encode(error.to_dict())


def attempt(row: Row) -> Attempt:
    return record(Attempt, row, error=_error(row["error_json"]))


def event(row: Row) -> Event:
    return record(
        Event,
        row,
        from_state=State(row["from_state"]) if row["from_state"] else None,
        to_state=State(row["to_state"]),
        detail=decode(row["detail_json"]) or {},
    )


def log_lines(found: Sequence[Row]) -> list[LogLine]:
    return [LogLine(row["seq"], row["ts"], row["stream"], row["level"], row["line"]) for row in found]


def input_request(row: Row) -> InputRequest:
    return record(InputRequest, row, params=decode(row["params_json"]), content=decode(row["content_json"]))
