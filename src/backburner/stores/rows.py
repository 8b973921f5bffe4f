"""Rows to records, and records to the parameters of statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, get_args

from .. import json_text
from ..lifecycle import Signal, State, next_state
from ..retry import Retry
from ..task import (
    Answer,
    Artifact,
    Attempt,
    Caller,
    Event,
    InputRequest,
    Isolation,
    LogLine,
    NewTask,
    Progress,
    Resources,
    ResultKind,
    Task,
    TaskError,
    Worker,
)
from ..task_request import MOST_RESOURCES
from .statements import NEVER
from .transaction import Row

decode, encode = json_text.decode, json_text.encode


def by_name(row: Row) -> dict[str, Any]:
    """The row as a dict. SQLite's own row walks along its columns for every name, and a task has forty."""
    return row if isinstance(row, dict) else dict(zip(row.keys(), tuple(row), strict=True))


def new_task_parameters(new: NewTask, now: int, worker: str | None) -> dict[str, Any]:
    """For a task that is queued, or leased for a worker right away."""
    return {
        "state": State.QUEUED if worker is None else next_state(State.QUEUED, Signal.CLAIM),
        "attempt": 0 if worker is None else 1,
        "worker_id": worker,
        "updated_at": new.submitted_at if worker is None else now,
        "task_id": new.task_id,
        "owner": new.owner,
        "tool_name": new.tool_name,
        "target": new.target,
        "external_id": new.external_id,
        "parent_id": new.parent_id,
        "idempotency_key": new.idempotency_key,
        "inputs_json": new.inputs_json,
        "inputs_hash": new.inputs_hash,
        "inputs_bytes": len(new.inputs_json),
        "queue": new.queue,
        "priority": new.priority,
        "share": new.share,
        "tags_json": encode(list(new.tags)),
        "resources_json": _sparse(new.resources),
        "retry_json": _sparse(new.retry),
        "meta_json": _meta_json(new),
        "webhooks_json": new.webhooks_json,
        "traceparent": new.traceparent,
        "hint_s": new.hint_s,
        "estimate_s": new.estimate_s,
        "ttl_s": new.ttl_s,
        "submitted_at": new.submitted_at,
        "expires_at": new.expires_at,
        "max_attempts": new.retry.max_attempts,
    }


@lru_cache(maxsize=256)
def _sparse(record: Resources | Retry) -> str:
    values = ((name, getattr(record, name)) for name in record.__slots__)
    return encode({name: value for name, value in values if value is not None})


# `meta_json` holds the caller's own keys, and beside them fields that have no column. It keeps this shape, so
# that a process of an earlier release that is still at work on the store reads a task right, and its tasks
# are read right here.

_TRACESTATE = "backburner:tracestate"
_KEYS = ("isolation", "result", "answers", "caller", "backburner:launch", _TRACESTATE)
#: Where the caller's own keys are that are named like one of these, or like this.
_ASIDE = "own"


def _from_tool(isolation: Isolation, result_kind: ResultKind, launch: str) -> dict[str, Any]:
    said: dict[str, Any] = {"isolation": isolation}
    if result_kind != "value":
        said["result"] = "mcp"
    return {**said, "backburner:launch": launch} if launch else said


# Most callers say nothing of the kind; what their tools and servers say is one of a few texts.
_SHORT = 150


@lru_cache(maxsize=256)
def _plain(isolation: Isolation, result_kind: ResultKind, launch: str) -> str:
    return encode(_from_tool(isolation, result_kind, launch))


def _meta_json(new: NewTask) -> str:
    if not (new.meta or new.answers or new.caller or new.tracestate):
        return _plain(new.isolation, new.result_kind, new.launch)
    kept = dict(new.meta)
    if aside := {key: kept.pop(key) for key in (*_KEYS, _ASIDE) if key in kept}:
        kept[_ASIDE] = aside
    kept.update(_from_tool(new.isolation, new.result_kind, new.launch))
    if new.answers:
        kept["answers"] = {key: answer.to_dict() for key, answer in new.answers.items()}
    if new.caller is not None:
        kept["caller"] = new.caller.to_dict()
    if new.tracestate is not None:
        kept[_TRACESTATE] = new.tracestate
    return encode(kept)


def _from_meta_json(text: str) -> dict[str, Any]:
    """The fields of a task that its `meta_json` says."""
    return _said_shortly(text) if len(text) <= _SHORT else _said(text)


def _said(text: str) -> dict[str, Any]:
    kept = decode(text)
    answers, caller = kept.get("answers") or {}, kept.get("caller")
    own = {key: value for key, value in kept.items() if key not in _KEYS and key != _ASIDE}
    try:
        return {
            "isolation": isolation if (isolation := kept.get("isolation")) in get_args(Isolation) else "warm",
            "launch": str(kept.get("backburner:launch", "")),
            "result_kind": "call_tool_result" if kept.get("result") == "mcp" else "value",
            "answers": {key: Answer.from_dict(answer) for key, answer in answers.items()},
            "caller": None if caller is None else Caller.from_dict(caller),
            "tracestate": kept.get(_TRACESTATE),
            "meta": {**own, **kept.get(_ASIDE, {})},
        }
    except (AttributeError, KeyError, TypeError):
        return {"meta": kept}  # an earlier release let callers have these keys for something else


_said_shortly = lru_cache(maxsize=256)(_said)


def launch_of(meta_json: str) -> str:
    """The launch of the task that says this; empty when it has none."""
    launch: str = _from_meta_json(meta_json).get("launch", "")
    return launch


def task(row: Row) -> Task:
    """A task from a row of `task_whole` or `task_summary`."""
    row = by_name(row)
    progress, error = decode(row["progress_json"]), decode(row["error_json"])
    return Task(
        seq=row["seq"],
        task_id=row["task_id"],
        owner=row["owner"],
        tool_name=row["tool_name"],
        target=row["target"],
        queue=row["queue"],
        state=State(row["state"]),
        priority=row["priority"],
        submitted_at=row["submitted_at"],
        updated_at=row["changed_at"],
        attempt=row["attempt"],
        unstarted=row.get("unstarted", 0),
        failures=row["failures"],
        max_attempts=row["max_attempts"],
        retry=retry(row["retry_json"]),
        resources=_resources(row["resources_json"]),
        inputs=decode(row["inputs_json"]),
        tags=_tags(row["tags_json"]),
        ttl_s=row["ttl_s"],
        idempotency_key=row["idempotency_key"],
        external_id=row["external_id"],
        parent_id=row["parent_id"],
        hint_s=row["hint_s"],
        estimate_s=row["estimate_s"],
        traceparent=row["traceparent"],
        **_from_meta_json(row["meta_json"]),
        ready_at=None if row["ready_at"] == NEVER else row["ready_at"],
        waits_for=row.get("waits_for"),
        started_at=row["started_at"],
        heartbeat_at=row["heartbeat_at"],
        completed_at=row["completed_at"],
        expires_at=row["expires_at"],
        timeout_at=row["timeout_at"],
        worker_id=row["worker_id"],
        cancel_requested=bool(row["cancel_requested"]),
        cancel_reason=row["cancel_reason"],
        progress=Progress.from_dict(progress) if progress else None,
        result=decode(row["result_json"]),
        error=TaskError.from_dict(error) if error else None,
        metrics=decode(row["metrics_json"]) or {},
    )


# The same few texts come again and again, and what they stand for never changes.


@lru_cache(maxsize=256)
def retry(text: str) -> Retry:
    policy = decode(text)
    return Retry(**{**policy, "on": tuple(policy["on"])})


@lru_cache(maxsize=256)
def _resources(text: str) -> Resources:
    # An earlier release took any number, and a worker cannot add up all of them.
    return Resources(
        **{name: min(value, getattr(MOST_RESOURCES, name)) for name, value in decode(text).items()}
    )


@lru_cache(maxsize=256)
def _tags(text: str) -> tuple[str, ...]:
    return tuple(decode(text))


def cancel_error(reason: str | None, otherwise: TaskError | None) -> TaskError | None:
    """Return the error of a cancelled task: the reason of the cancel, if there is one."""
    return TaskError("cancelled", f"Cancelled: {reason}") if reason else otherwise


def metrics_json(metrics: Mapping[str, Any] | None) -> str | None:
    return encode(dict(metrics)) if metrics else None


def error_json(error: TaskError | None) -> str | None:
    return None if error is None else encode(error.to_dict())


def attempt(row: Row) -> Attempt:
    error = decode(row["error_json"])
    return Attempt(
        task_id=row["task_id"],
        attempt=row["attempt"],
        worker_id=row["worker_id"],
        claimed_at=row["claimed_at"],
        started_at=row["started_at"],
        heartbeat_at=row["heartbeat_at"],
        ended_at=row["ended_at"],
        pid=row["pid"],
        outcome=row["outcome"],
        error=TaskError.from_dict(error) if error else None,
    )


def event(row: Row) -> Event:
    return Event(
        seq=row["seq"],
        task_id=row["task_id"],
        ts=row["ts"],
        attempt=row["attempt"],
        signal=row["signal"],
        from_state=State(row["from_state"]) if row["from_state"] else None,
        to_state=State(row["to_state"]),
        worker_id=row["worker_id"],
        detail=decode(row["detail_json"]) or {},
    )


def log_lines(found: Sequence[Row]) -> list[LogLine]:
    return [LogLine(row["seq"], row["ts"], row["stream"], row["level"], row["line"]) for row in found]


def log_parameters(task_id: str, line: LogLine) -> dict[str, Any]:
    return {
        "task_id": task_id,
        "seq": line.seq,
        "ts": line.ts,
        "stream": line.stream,
        "level": line.level,
        "line": line.message,
    }


def artifact(row: Row) -> Artifact:
    return Artifact(**{name: row[name] for name in Artifact.__slots__})


def worker(row: Row) -> Worker:
    return Worker(**{name: row[name] for name in Worker.__slots__})


def input_request(row: Row) -> InputRequest:
    return InputRequest(
        task_id=row["task_id"],
        key=row["key"],
        attempt=row["attempt"],
        method=row["method"],
        params=decode(row["params_json"]),
        asked_at=row["asked_at"],
        answered_at=row["answered_at"],
        action=row["action"],
        content=decode(row["content_json"]),
    )
