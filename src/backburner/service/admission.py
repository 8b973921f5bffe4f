"""Admission: turns a checked request into a new task, with the defaults of its tool and the settings."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ..core import json_text
from ..core.requests import (
    MAX_KEY_CHARS,
    TaskRequest,
    check_optional,
    check_priority,
    check_queue,
    check_resources,
    check_size,
    check_tags,
    check_text,
    check_tracestate,
    check_ttl,
)
from ..core.task import Answer, NewTask, Resources, new_task_id
from ..core.times import Clock
from ..errors import InvalidRequest
from ..settings import Settings
from ..store.webhooks import kept_hooks
from ..tools.estimates import Estimator, hint
from ..tools.spec import Registry, ToolSpec


class Admission:
    """Makes new tasks of requests for one app, which is at `target`, in a process that stands on `launch`."""

    def __init__(
        self,
        tools: Registry,
        settings: Settings,
        clock: Clock,
        estimator: Estimator,
        target: str,
        launch: Callable[[], str],
    ) -> None:
        self._tools = tools
        self._settings = settings
        self._clock = clock
        self._estimator = estimator
        self._target, self._launch = target, launch

    def new_task(self, request: TaskRequest) -> NewTask:
        """The task that is asked for. Raises InvalidRequest, and its kinds."""
        spec = self._tools.get(request.tool_name)
        settings, now = self._settings, self._clock.now_ms()
        inputs_json = self._check_inputs(spec, request.inputs)
        ttl_s = check_ttl(
            request.ttl_s,
            settings.retention.ttl_s if spec.ttl_s is None else spec.ttl_s,
            settings.retention.max_ttl_s,
        )
        hint_s, inputs_hash = hint(spec.estimate, request.inputs), hash_of(request.inputs)
        return NewTask(
            task_id=new_task_id(now),
            owner=check_text("owner", request.owner, MAX_KEY_CHARS),
            tool_name=spec.name,
            target=self._target,
            launch=self._launch(),
            inputs_json=inputs_json,
            inputs_hash=inputs_hash,
            queue=check_queue(request.queue or spec.queue_in(settings), settings.queues),
            submitted_at=now,
            ttl_s=ttl_s,
            priority=check_priority(request.priority),
            tags=check_tags(request.tags),
            share=self._share(request.owner, request.tags),
            resources=self._limits(spec, request.resources),
            retry=spec.kept_retry,
            idempotency_key=check_optional("idempotency_key", request.idempotency_key),
            external_id=check_optional("external_id", request.external_id),
            parent_id=check_optional("parent_id", request.parent_id),
            hint_s=hint_s,
            estimate_s=self._estimator.estimate(spec.name, len(inputs_json), hint_s, inputs_hash),
            traceparent=check_optional("traceparent", request.traceparent),
            tracestate=check_tracestate(request.tracestate),
            isolation=spec.isolation or settings.isolation.runners,
            result_kind=spec.result_kind,
            answers=request.answers,
            caller=request.caller,
            meta=self._check_meta({**spec.meta, **(request.meta or {})}, request.answers),
            limits=spec.limits,
            concurrency_key=spec.key_of(request.inputs),
            webhooks_json=self._hooks(request),
        )

    def queue_cap(self, new: NewTask) -> int:
        """Return the cap of the task's queue."""
        return self._settings.queues[new.queue].max_length

    def _check_inputs(self, spec: ToolSpec, inputs: Mapping[str, Any]) -> str:
        what = f"The inputs of {spec.name}"
        if not isinstance(inputs, Mapping):
            raise InvalidRequest(
                reason=f"the inputs of {spec.name} must be an object with a field for each input"
            )
        text = check_size(what, json_text.encode(dict(inputs), what), self._settings.limits.max_input_bytes)
        spec.check(inputs)
        return text

    def _check_meta(self, meta: Mapping[str, Any], answers: Mapping[str, Answer]) -> Mapping[str, Any]:
        if meta or answers:
            what, told = "The task's meta data", {key: answer.to_dict() for key, answer in answers.items()}
            check_size(what, json_text.encode([meta, told], what), self._settings.limits.max_input_bytes)
        return meta

    def _hooks(self, request: TaskRequest) -> str | None:
        settings = self._settings.webhook
        return kept_hooks(settings, request.webhook) if settings.url or request.webhook is not None else None

    def _share(self, owner: str, tags: Sequence[str]) -> str:
        by = self._settings.fair_share
        if by in ("", "owner"):
            return owner if by else ""
        return next((tag for tag in tags if tag.startswith(by)), "")

    def _limits(self, spec: ToolSpec, asked: Resources | None) -> Resources:
        """Return the requested resources within the limits of tool and operator."""
        limits = self._settings.limits
        operator = Resources(
            max_runtime_s=limits.max_runtime_s if spec.timeout_s is None else None,
            cpu=limits.max_cpu,
            memory_mb=limits.max_memory_mb,
            scratch_mb=limits.max_scratch_mb,
        )
        tool = replace(spec.resources, max_runtime_s=spec.timeout_s)
        return check_resources(asked or Resources(), spec.name, tool, operator)


def hash_of(inputs: Mapping[str, Any]) -> str:
    """Return the hash by which equal inputs are found."""
    return hashlib.sha256(json_text.canonical(inputs).encode()).hexdigest()
