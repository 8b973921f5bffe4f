"""A new task on its way into a store: what it becomes there, and how one process hands it to another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from types import MappingProxyType
from typing import Any

from . import json_text
from .lifecycle import State
from .limits import ToolLimits
from .retry import Retry
from .task import Answer, Caller, NewTask, Resources, Task

_DEFAULTS = {
    field.name: field.default_factory() if field.default_factory is not MISSING else field.default
    for field in fields(NewTask)
}


@dataclass(frozen=True, slots=True)
class Submission:
    """What became of a submit. `position` counts the tasks ahead in the queue, and this one."""

    task: Task
    created: bool
    position: int | None


def as_submitted(new: NewTask, seq: int, leased: Mapping[str, Any] = MappingProxyType({})) -> Task:
    """The task as a store has it when it has just come; `leased` is what a lease says of it at once."""
    return Task(
        seq=seq,
        task_id=new.task_id,
        owner=new.owner,
        tool_name=new.tool_name,
        target=new.target,
        launch=new.launch,
        queue=new.queue,
        priority=new.priority,
        submitted_at=new.submitted_at,
        max_attempts=new.retry.max_attempts,
        retry=new.retry,
        resources=new.resources,
        inputs=json_text.decode(new.inputs_json),
        tags=new.tags,
        ttl_s=new.ttl_s,
        idempotency_key=new.idempotency_key,
        external_id=new.external_id,
        parent_id=new.parent_id,
        hint_s=new.hint_s,
        estimate_s=new.estimate_s,
        traceparent=new.traceparent,
        tracestate=new.tracestate,
        isolation=new.isolation,
        result_kind=new.result_kind,
        answers=new.answers,
        caller=new.caller,
        meta=new.meta,
        expires_at=new.expires_at,
        **{"state": State.QUEUED, "updated_at": new.submitted_at, **leased},
    )


def to_json(new: NewTask) -> dict[str, Any]:
    """What is said of the task, without what goes without saying."""
    given = {name: value for name in _DEFAULTS if (value := getattr(new, name)) != _DEFAULTS[name]}
    for name in ("resources", "retry", "limits"):
        if name in given:
            given[name] = [getattr(given[name], part) for part in given[name].__slots__]
    if "answers" in given:
        given["answers"] = {key: answer.to_dict() for key, answer in new.answers.items()}
    if new.caller is not None:
        given["caller"] = new.caller.to_dict()
    return given


def from_json(said: dict[str, Any]) -> NewTask:
    """The task that `to_json` said. Raises TypeError, ValueError or KeyError where it is none."""
    given = dict(said)
    if "tags" in given:
        given["tags"] = tuple(given["tags"])
    if "resources" in given:
        given["resources"] = Resources(*given["resources"])
    if "retry" in given:
        given["retry"] = Retry(*given["retry"])
    if "limits" in given:
        given["limits"] = ToolLimits(*given["limits"])
    if "answers" in given:
        given["answers"] = {key: Answer.from_dict(answer) for key, answer in given["answers"].items()}
    if "caller" in given:
        given["caller"] = Caller.from_dict(given["caller"])
    return NewTask(**given)
