"""TaskService: validation, ownership, idempotency, admission. The only door for callers.

`TaskService` blocks; `TaskService.aio` is the same for asyncio. Owners are checked here and in
no other place: `owner=None` is the operator, who sees everything, and is never taken from a
request.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from msgspec.structs import replace

from ..core import json_text
from ..core.lifecycle import TERMINAL, State
from ..core.logs import shown_lines
from ..core.requests import (
    MAX_KEY_CHARS,
    MAX_REASON_CHARS,
    TaskRequest,
    check_beginning,
    check_id,
    check_limit,
    check_optional,
    check_priority,
    check_queue,
    check_resources,
    check_size,
    check_states,
    check_tags,
    check_text,
    check_time,
    check_tracestate,
    check_ttl,
    deadline,
    log_cursor,
    log_seq,
)
from ..core.task import (
    LOCAL_OWNER,
    Answer,
    Artifact,
    Attempt,
    Event,
    InputRequest,
    LogLine,
    NewTask,
    Resources,
    Submission,
    Task,
    TaskHead,
    TaskOptions,
    new_task_id,
)
from ..core.times import Clock, SystemClock
from ..errors import BackburnerError, InvalidRequest, NotFinished, StoreError, TaskNotFound
from ..observability.logging import about
from ..settings import Settings
from ..store.protocol import Store, TaskQuery
from ..store.webhooks import kept_hooks
from ..tools.estimates import Estimator, ExpectedRuntime, advised_poll_ms, eta_s, hint, poll_after_ms
from ..tools.spec import Registry, ToolSpec
from .changes import Changes
from .cursors import TaskPage, read_page

if TYPE_CHECKING:
    from ..engines.protocol import Engine

log = logging.getLogger("backburner.service")

_MAX_PAGE, _MAX_LOG_PAGE = 500, 5000


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """A task and what is computed about it; a guessed `estimate` has no part in the time left."""

    task: Task
    position: int | None
    estimate: ExpectedRuntime
    eta_s: float | None
    poll_after_ms: int
    questions: Sequence[InputRequest] = ()  # the open ones
    created: bool = False
    joined: bool = False  # it is the task of a call that was made before

    @property
    def advised_poll_ms(self) -> int:
        """`poll_after_ms` for models and people; programs may look sooner."""
        return advised_poll_ms(self.task, self.poll_after_ms)

    @property
    def task_id(self) -> str:
        return self.task.task_id


@dataclass(frozen=True, slots=True)
class LogPage:
    """Log lines after a cursor. `truncated` says that more are there already."""

    lines: Sequence[LogLine]
    next_cursor: str
    truncated: bool


@dataclass(frozen=True, slots=True)
class TaskResult:
    task: Task
    artifacts: Sequence[Artifact]


@dataclass(frozen=True, slots=True)
class TaskHistory:
    """Attempts, audit trail and questions of one task."""

    attempts: Sequence[Attempt]
    events: Sequence[Event]
    questions: Sequence[InputRequest]


class TaskService:
    """The rules, over one store. Every method is safe to call from many threads."""

    def __init__(
        self,
        store: Store,
        tools: Registry,
        settings: Settings,
        *,
        clock: Clock | None = None,
        target: str = "",
        launch: Callable[[], str] = str,
        remove_files: Callable[[str], object] = lambda task_id: None,
        engine: Engine | None = None,
    ) -> None:
        """Without an `engine`, tasks are stored and wait for a supervisor that is there already."""
        from .aio import AsyncTaskService

        self.store = store
        self.tools = tools
        self.settings = settings
        self.changes = Changes(store)
        self.aio = AsyncTaskService(self)
        self._clock = clock or SystemClock()
        self._remove_files = remove_files
        self._engine = engine
        self._estimator = Estimator(store, lambda: [spec.name for spec in tools])
        self.admission = Admission(tools, settings, self._clock, self._estimator, target, launch)

    # -- submitting

    def submit(self, tool_name: str, inputs: Mapping[str, Any], **options: Unpack[TaskOptions]) -> TaskStatus:
        """Store a task and start it; it is on disk when this returns. The options are TaskRequest's.

        The task is stored even if no worker can be started now. The same idempotency key with the
        same inputs returns the first task. Raises InvalidRequest (and its subclasses),
        IdempotencyConflict or QueueFull; then nothing is written.
        """
        return self.submit_request(TaskRequest(tool_name, inputs, **options))

    def submit_request(self, request: TaskRequest) -> TaskStatus:
        """As `submit`, of a request that is made already."""
        return self.submit_new(self.admission.new_task(request))

    def submit_new(self, new: NewTask) -> TaskStatus:
        """Store a checked task and have it started; harmless when repeated."""
        queue_cap = self.admission.queue_cap(new)
        submission = None
        if self._engine is not None:
            with contextlib.suppress(BackburnerError):  # `_notify` reports what is wrong with the engine
                submission = self._engine.submit(new, queue_cap)
        return self._submitted(submission or self.store.submit(new, queue_cap=queue_cap))

    async def submit_new_async(self, new: NewTask) -> TaskStatus | None:
        """As `submit_new`, through the engine alone; None if that declines."""
        submission = None
        if self._engine is not None:
            with contextlib.suppress(BackburnerError):
                submission = await self._engine.submit_async(new, self.admission.queue_cap(new))
        return None if submission is None else self._submitted(submission)

    def _submitted(self, submission: Submission) -> TaskStatus:
        if submission.created:
            self._notify(submission.task)
        return self._view(submission.task, submission.position, created=submission.created)

    def _notify(self, task: Task) -> None:
        """Have a stored task started. Its caller is not told of a failure, since the task is safe."""
        if self._engine is None:
            return
        try:
            self._engine.notify(task)
        except (BackburnerError, OSError, RuntimeError) as error:  # the last when no thread can be started
            task_id, message = task.task_id, "Task %s is stored, but no worker could be started: %s"
            log.warning(message, task_id, error, extra=about(task_id))

    def request_again(
        self, task_id: str, inputs: Mapping[str, Any], *, owner: str | None = LOCAL_OWNER
    ) -> TaskRequest:
        """Return a request for a new task like this one, of the same owner, with other inputs.

        A masked secret keeps its value. Raises TaskNotFound and UnknownTool.
        """
        task = self._get(task_id, owner)
        return TaskRequest(
            task.tool_name,
            self.tools.get(task.tool_name).unmasked(inputs, task.inputs or {}),
            owner=task.owner,
            queue=task.queue,
            priority=task.priority,
            ttl_s=task.ttl_s,
            tags=task.tags,
            resources=task.resources,
            answers=task.answers,
            caller=task.caller,
        )

    # -- reading

    def status(self, task_id: str, *, owner: str | None = LOCAL_OWNER) -> TaskStatus:
        """Return a task's status. Raises TaskNotFound, for another owner's task too."""
        task = self._get(task_id, owner)
        return self._view(task, self.store.position(task))

    def head(self, task_id: str, *, owner: str | None = LOCAL_OWNER) -> TaskHead:
        """Return a task's owner, state and attempt: cheaper than `status`. Raises TaskNotFound."""
        return self.store.head(check_id(task_id), owner)

    def heads(self, task_ids: Sequence[str], *, owner: str | None = LOCAL_OWNER) -> Mapping[str, TaskHead]:
        """The heads of all of them, by one read. Raises TaskNotFound for the first that is not there."""
        found = self.store.heads([check_id(task_id) for task_id in task_ids])
        for task_id in task_ids:
            if task_id not in found or owner not in (None, found[task_id].owner):
                raise TaskNotFound(task_id=task_id)
        return {task_id: found[task_id] for task_id in task_ids}

    def find(self, external_id: str, *, owner: str = LOCAL_OWNER) -> TaskStatus | None:
        """The owner's task with that external id."""
        task = self.store.find(check_text("external_id", external_id, MAX_KEY_CHARS), owner)
        return None if task is None else self._view(task, self.store.position(task))

    def ids(self, beginning: str, owner: str | None = None, limit: int = 10) -> list[str]:
        """Return ids of tasks that start with `beginning`."""
        return self.store.ids(beginning, owner, limit)

    def history(self, task_id: str, *, owner: str | None = LOCAL_OWNER) -> TaskHistory:
        """Return what has happened to a task. Raises TaskNotFound."""
        self.head(task_id, owner=owner)
        store = self.store
        return TaskHistory(store.attempts(task_id), store.events(task_id), store.input_requests(task_id))

    def list(
        self,
        *,
        owner: str | None = LOCAL_OWNER,
        states: Sequence[str] = (),
        tool_name: str | None = None,
        tags_any: Sequence[str] = (),
        parent_id: str | None = None,
        queue: str | None = None,
        id_beginning: str | None = None,
        text: str | None = None,
        submitted_after: int | None = None,
        submitted_before: int | None = None,
        oldest_first: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> TaskPage:
        """A page of tasks, newest or oldest first. Raises InvalidRequest, and InvalidCursor, its kind."""
        check_limit(limit, _MAX_PAGE)
        query = TaskQuery(
            owner=owner,
            states=check_states(states),
            tool_name=check_optional("tool_name", tool_name),
            tags_any=check_tags(tags_any),
            parent_id=check_optional("parent_id", parent_id),
            queue=check_optional("queue", queue),
            id_beginning="" if id_beginning is None else check_beginning(id_beginning),
            text=check_optional("text", text) or "",
            submitted_after=check_time("submitted_after", submitted_after),
            submitted_before=check_time("submitted_before", submitted_before),
            limit=limit,
        )
        return read_page(self.store, query, cursor, oldest_first=oldest_first)

    def logs(
        self,
        task_id: str,
        *,
        owner: str | None = LOCAL_OWNER,
        cursor: str | None = None,
        limit: int = 200,
        operator: bool = False,
    ) -> LogPage:
        """Log lines after `cursor`, oldest first. Ask again with `next_cursor` for what comes later.

        A page may have fewer lines than `limit` though there are more: lines that later ones replace are left
        out, and so are those that are hidden from clients, unless for an `operator`.
        """
        check_limit(limit, _MAX_LOG_PAGE)
        after = 0 if cursor is None else log_seq(cursor)
        self.head(task_id, owner=owner)
        while True:
            lines = self.store.logs(task_id, after, limit + 1)
            truncated = len(lines) > limit
            lines = lines[:limit]
            shown = shown_lines(lines, operator=operator)
            after = lines[-1].seq if lines else after
            if shown or not truncated:
                return LogPage(shown, log_cursor(after), truncated)

    def last_logs(self, task_id: str, *, owner: str | None = LOCAL_OWNER, limit: int = 200) -> LogPage:
        """The last lines of a log so far, and the cursor for what comes later."""
        check_limit(limit, _MAX_LOG_PAGE)
        self.head(task_id, owner=owner)
        after = max(0, self.store.last_log_seq(task_id) - limit)
        return self.logs(task_id, owner=owner, cursor=log_cursor(after), limit=_MAX_LOG_PAGE)

    def artifacts(self, task_id: str, *, owner: str | None = LOCAL_OWNER) -> Sequence[Artifact]:
        """The files that a task has made so far."""
        return self.store.artifacts(self.head(task_id, owner=owner).task_id)

    def result(self, task_id: str, *, owner: str | None = LOCAL_OWNER) -> TaskResult:
        """The outcome of a finished task. Raises NotFinished, and TaskNotFound once it has expired."""
        task = self._get(task_id, owner)
        if task.state is State.EXPIRED:
            raise TaskNotFound(task_id=task_id)
        if not task.finished:
            raise NotFinished(
                task_id=task_id, state=task.state, poll_after_ms=self._view(task, None).poll_after_ms
            )
        return TaskResult(task, self.store.artifacts(task.task_id))

    # -- steering

    def cancel(
        self, task_id: str, *, owner: str | None = LOCAL_OWNER, reason: str | None = None
    ) -> TaskStatus:
        """Ask for a task to be stopped; harmless on one that is finished or being stopped already."""
        if reason is not None:
            reason = check_text("reason", reason, MAX_REASON_CHARS)
        return self._view(self.store.cancel(check_id(task_id), owner, reason), None)

    def retry(self, task_id: str, *, owner: str | None = LOCAL_OWNER) -> TaskStatus:
        """Run a failed, cancelled or timed-out task once more. Raises NotAllowedNow otherwise."""
        task = self.store.retry(check_id(task_id), owner)
        self._notify(task)
        return self._changed(task)

    def delete(self, task_id: str, *, owner: str | None = LOCAL_OWNER) -> None:
        """Forget a finished task, and its files. Raises NotAllowedNow while it is not finished."""
        if self.head(task_id, owner=owner).state in TERMINAL:
            self._remove_files(
                task_id
            )  # first: where their storage is away, all stays, and can be tried again
        self.store.delete(task_id, owner)

    def answer_input(
        self, task_id: str, answers: Mapping[str, Mapping[str, Any]], *, owner: str | None = LOCAL_OWNER
    ) -> TaskStatus:
        """Answer open questions: `{key: {"action": "accept", "content": {…}}}`; partial answers are fine.

        Unknown and answered keys are passed over. Raises InvalidAnswer; then none is taken.
        """
        from ..core.questions import check_answers

        self.head(task_id, owner=owner)
        limit = self.settings.limits.max_input_bytes
        checked = check_answers(task_id, self.store.input_requests(task_id), answers, longest_bytes=limit)
        return self._changed(self.store.answer(task_id, checked, owner))

    def tell_model(self, task_id: str, *, owner: str | None = LOCAL_OWNER) -> bool:
        """Record that a model knows the end of a task. Return False if that was recorded before.

        Raises NotFinished.
        """
        self.result(task_id, owner=owner)
        return self.store.tell_model(task_id, owner)

    def is_model_told(self, task_id: str, *, owner: str | None = LOCAL_OWNER) -> bool:
        """Return whether it is recorded that a model knows the end of a task."""
        attempt = self.head(task_id, owner=owner).attempt
        return any(
            event.signal == "told_model" and event.attempt == attempt for event in self.store.events(task_id)
        )

    def wait(
        self,
        task_id: str,
        timeout_s: float,
        *,
        owner: str | None = LOCAL_OWNER,
        until: Callable[[Task], bool] = lambda task: task.finished,
    ) -> TaskStatus:
        """Block until the task is finished (or `until` says so), at most so long; then its status."""
        end = deadline(timeout_s)
        changed = threading.Event()
        stop = self.changes.listen(f"task:{task_id}", changed.set)
        try:
            while True:
                changed.clear()
                task = self._get(task_id, owner)
                left = end - time.monotonic()
                if until(task) or left <= 0:
                    return self._view(task, self.store.position(task))
                changed.wait(left)
        finally:
            stop()

    # -- what every answer is made of

    def _get(self, task_id: str, owner: str | None) -> Task:
        return self.store.get(check_id(task_id), owner)

    def view(self, task: Task) -> TaskStatus:
        """Return the status of a listed task, without its queue position."""
        return self._view(task, None)

    def _changed(self, task: Task) -> TaskStatus:
        """The view of a task right after a change. The change is kept, so what cannot be read is left out."""
        try:
            return self._view(task, self.store.position(task))
        except StoreError:
            return TaskStatus(task, None, self._estimator.expected(task), None, poll_after_ms(None, 0.0))

    def known_left_s(self, status: TaskStatus, inputs: Mapping[str, Any]) -> float | None:
        """Return the time left by the author, by runs with these very inputs, or by progress; else None.

        An estimate by runs with other inputs is fit to be shown, but not to decide how a call is answered.
        """
        task = status.task
        has_progress = task.progress is not None and bool(task.progress.percent)
        if status.eta_s is None or task.hint_s is not None or has_progress:
            return status.eta_s
        return status.eta_s if self._estimator.has_run(task.tool_name, _hash_of(inputs)) else None

    def _view(self, task: Task, position: int | None, created: bool = False) -> TaskStatus:
        elapsed_s = max(0, self._clock.now_ms() - (task.started_at or task.submitted_at)) / 1000
        ran_s = elapsed_s if task.started_at else 0.0
        left_s = None if task.finished else eta_s(task.progress, ran_s, task.estimate_s)
        questions: tuple[InputRequest, ...] = ()
        if task.state is State.INPUT_REQUIRED:
            asked = self.store.input_requests(task.task_id)
            questions = tuple(q for q in asked if q.answered_at is None and q.attempt == task.attempt)
        estimate, poll_ms = self._estimator.expected(task), poll_after_ms(left_s, elapsed_s)
        shown_s = None if left_s is None else round(left_s, 1)
        return TaskStatus(task, position, estimate, shown_s, poll_ms, questions, created)

    def close(self) -> None:
        """Stop listening. The store is its opener's to close."""
        self.changes.close()
        self.aio.close()


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
        hint_s, inputs_hash = hint(spec.estimate, request.inputs), _hash_of(request.inputs)
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


def _hash_of(inputs: Mapping[str, Any]) -> str:
    """Return the hash by which equal inputs are found."""
    return hashlib.sha256(json_text.canonical(inputs).encode()).hexdigest()
