"""Who runs the tasks of the inline mode: a thread for each, in the process of the test."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from contextvars import copy_context
from typing import Any

from ... import json_text
from ...app import Backburner
from ...clock import SystemClock
from ...errors import LeaseLost, TaskCancelled
from ...execution import Assignment, Execution
from ...folders import open_outgoing, tasks_folder
from ...lifecycle import State
from ...reports import (
    Asked,
    Cancelled,
    Change,
    Checkpointed,
    Failed,
    Logged,
    Outcome,
    Progressed,
    Registered,
    Started,
    Stopping,
    Succeeded,
)
from ...store import Lease
from ...task import Artifact, InputRequest, LogLine, NewTask, Progress, Resources, Task, TaskError

#: What is in an answer; None declines.
Reply = Mapping[str, Any] | None
#: The answer to a question, by its message and its schema.
Answer = Callable[[str, Mapping[str, Any]], Reply]

PATIENCE_S = 30.0
_WORKER = "inline"


def reply_of(content: Reply) -> dict[str, Any]:
    return {"action": "decline"} if content is None else {"action": "accept", "content": dict(content)}


class InlineClock(SystemClock):
    """The machine's, with the waits before retries left out."""

    def __init__(self) -> None:
        self._ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead_ms

    def pass_over(self, wait_ms: int) -> None:
        self._ahead_ms += wait_ms


class InlineEngine:
    """Each task has a thread, so that it can ask its caller; who submits it waits until it needs nobody."""

    name = "inline"

    def __init__(self, app: Backburner, clock: InlineClock, answer: Answer | None) -> None:
        self._app = app
        self._clock = clock
        self.answer = answer
        self.waits = True
        self.progress: dict[str, list[Progress]] = {}
        self.checkpoints: dict[str, list[Any]] = {}
        self._threads: dict[str, threading.Thread] = {}

    def start(self) -> None: ...

    def keep(self, new: NewTask, queue_cap: int | None) -> None:
        """The store keeps it."""

    async def keep_soon(self, new: NewTask, queue_cap: int | None) -> None: ...

    def submit(self, task: Task) -> None:
        waits = self.waits
        run = copy_context().run
        thread = threading.Thread(target=run, args=(self._run, task.task_id), name=f"inline-{task.tool_name}")
        thread.daemon = True
        self._threads[task.task_id] = thread
        thread.start()
        if waits:
            self.wait(task.task_id, PATIENCE_S)

    def wait(self, task_id: str, timeout_s: float) -> None:
        """Until the task is finished, or asks and nobody answers for the test. Raises TimeoutError."""

        def is_settled(task: Task) -> bool:
            return task.finished or (task.state is State.INPUT_REQUIRED and self.answer is None)

        status = self._app.service.wait(task_id, timeout_s, owner=None, until=is_settled)
        if not is_settled(status.task):
            raise TimeoutError(f"{task_id} is still {status.task.state} after {timeout_s:g} s")

    def stop(self) -> None:
        """Cancel what still runs, and wait for it."""
        for task_id, thread in self._threads.items():
            if thread.is_alive():
                self._app.service.cancel(task_id, owner=None, reason="The test is over")
                thread.join(PATIENCE_S)

    def _run(self, task_id: str) -> None:
        """Attempts, until none is to follow."""
        store = self._app.store
        while (lease := store.claim_task(task_id, _WORKER, None)) is not None:
            with contextlib.suppress(LeaseLost):
                _Attempt(self._app, self, lease, self._clock).run()
            if (wait_ms := store.ready_in_ms()) is not None:
                self._clock.pass_over(wait_ms)
                store.make_ready()


class _Attempt:
    """One attempt: it is the channel of its context, and writes what is said there into the store."""

    def __init__(self, app: Backburner, engine: InlineEngine, lease: Lease, clock: InlineClock) -> None:
        self._app = app
        self._engine = engine
        self._lease = lease
        self._clock = clock
        self._execution = Execution()
        self._changed = threading.Event()
        self._writing = threading.Lock()
        self._log_seq = lease.last_log_seq

    def run(self) -> None:
        stop = self._app.service.changes.listen(f"task:{self._lease.task_id}", self._changed.set)
        self._changed.set()  # it may be cancelled already
        over = threading.Event()
        heeding = threading.Thread(target=self._heed_cancels, args=(over,), daemon=True)
        heeding.start()
        try:
            self._report(Started(pid=os.getpid(), at=self._clock.now_ms()))
            spec = self._app.tools.get(self._lease.task.tool_name)
            outcome = self._execution.run(spec, self._assignment(), self)
            self._report(_outcome(outcome))
        finally:
            over.set()
            self._changed.set()
            stop()
            heeding.join()

    def _assignment(self) -> Assignment:
        """As a runner gets it, but for limits: they would be the test's own."""
        folder, limits = tasks_folder(self._app.data_dir), self._app.settings.limits
        return Assignment.of(self._lease, folder, limits, timeout_at=None, resources=Resources())

    def _report(self, *changes: Change) -> None:
        self._app.store.report(self._lease, *changes)

    def _heed_cancels(self, over: threading.Event) -> None:
        told = False
        while not over.is_set():
            self._changed.wait()
            self._changed.clear()
            if not told and not over.is_set() and self._is_cancelled():
                told = True
                with contextlib.suppress(LeaseLost):  # it has ended meanwhile
                    self._report(Stopping())
                self._execution.cancel(self._lease.task_id, self._lease.attempt)

    def _is_cancelled(self) -> bool:
        state = self._app.store.head(self._lease.task_id).state
        return state in (State.CANCEL_REQUESTED, State.CANCELLING)

    # -- the channel

    def log(self, level: str, message: str, stream: str = "log") -> None:
        with self._writing:
            self._log_seq += 1
            line = LogLine(self._log_seq, self._clock.now_ms(), stream, str(level), str(message))
            self._report(Logged((line,)))

    def progress(self, body: dict[str, Any]) -> None:
        said = Progress(**body)
        self._engine.progress.setdefault(self._lease.task_id, []).append(said)
        self._report(Progressed(said))

    def request(self, kind: str, body: dict[str, Any]) -> Any:
        match kind:
            case "checkpoint":
                kept = self._engine.checkpoints.setdefault(self._lease.task_id, [])
                kept.append(json_text.decode(body["data_json"]))
                self._report(Checkpointed(body["data_json"]))
            case "artifact":
                artifact = Artifact(**body)
                with open_outgoing(tasks_folder(self._app.data_dir), artifact) as source:
                    self._app.artifacts.keep(artifact, source)
                self._report(Registered(artifact))
            case "ask":
                return self._ask(body["requests"])
        return None

    def _ask(self, asked: list[dict[str, Any]]) -> dict[str, Any]:
        task_id, now = self._lease.task_id, self._clock.now_ms()
        heard = threading.Event()
        stop = self._app.service.changes.listen(f"task:{task_id}", heard.set)
        try:
            requests = [
                InputRequest(task_id, attempt=self._lease.attempt, asked_at=now, **each) for each in asked
            ]
            self._report(Asked(tuple(requests)))
            if self._engine.answer is not None:
                self._answer(requests)
            while True:
                if self._is_cancelled():
                    raise TaskCancelled
                answered = {
                    each.key: {"action": each.action, "content": each.content}
                    for each in self._app.store.input_requests(task_id)
                    if each.answered_at is not None
                }
                if all(request.key in answered for request in requests):
                    return {request.key: answered[request.key] for request in requests}
                heard.wait()
                heard.clear()
        finally:
            stop()

    def _answer(self, requests: list[InputRequest]) -> None:
        assert self._engine.answer is not None, "it has been looked at"
        replies = {}
        for each in requests:
            message, schema = str(each.params.get("message", "")), each.params.get("requestedSchema") or {}
            replies[each.key] = reply_of(self._engine.answer(message, schema))
        self._app.service.answer_input(self._lease.task_id, replies, owner=None)


def _outcome(last_word: dict[str, Any]) -> Outcome:
    metrics = last_word["metrics"]
    if last_word["kind"] == "succeeded":
        return Succeeded(last_word["result_json"], metrics)
    error = TaskError(**last_word["error"])
    if last_word["kind"] == "cancelled":
        return Cancelled(error, metrics)
    return Failed(error, metrics, bool(last_word.get("retryable")))
