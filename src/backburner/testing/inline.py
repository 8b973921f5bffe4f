"""Inline mode: an app's tasks run in threads of the test process, without other processes or files."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import copy_context
from typing import Any

from ..app import Backburner
from ..core import json_text
from ..core.files import open_outgoing, tasks_folder
from ..core.lifecycle import State
from ..core.reports import (
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
from ..core.task import Artifact, InputRequest, LogLine, NewTask, Progress, Resources, Task, TaskError
from ..core.times import SystemClock
from ..errors import InvalidRequest, LeaseLost, TaskCancelled
from ..settings import ArtifactSettings
from ..store import open_store
from ..store.protocol import Lease
from ..tools import targets
from ..tools.execution import Assignment, Execution
from ..tools.targets import app_of

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
    """Runs each task in a thread of its own; `notify` returns when the task is finished or asks."""

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

    def submit(self, new: NewTask, queue_cap: int | None) -> None: ...

    async def submit_async(self, new: NewTask, queue_cap: int | None) -> None: ...

    def notify(self, task: Task) -> None:
        waits = self.waits
        run = copy_context().run
        thread = threading.Thread(target=run, args=(self._run, task.task_id), name=f"inline-{task.tool_name}")
        thread.daemon = True
        self._threads[task.task_id] = thread
        thread.start()
        if waits:
            self.wait(task.task_id, PATIENCE_S)

    def wait(self, task_id: str, timeout_s: float) -> None:
        """Wait until the task is finished or asks the test a question. Raises TimeoutError."""

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
        folder = tasks_folder(self._app.data_dir)
        return Assignment.of(self._lease, folder, timeout_at=None, resources=Resources())

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


#: What a test says to the questions of tools: what is in each answer, where None declines, in order; or a
#: function of the message and the schema.
Answers = Iterable[Reply] | Answer


@contextlib.contextmanager
def inline(*apps: Any, answers: Answers | None = None) -> Iterator[InlineTasks]:
    """Run the tasks of these apps inline in the block; each is a Backburner, or a server with one attached.

    `answers` are given to the questions of tools, in order; without them, questions wait for
    `InlineTask.answer`, or for the MCP client that called. In the block an app may be made in any function.
    """
    tasks = InlineTasks(answers)
    targets.not_needed += 1
    try:
        for app in apps:
            tasks.use(app)
        yield tasks
    finally:
        targets.not_needed -= 1
        tasks.close()


class InlineTasks:
    """The tasks of a test. `run` is for the app that was named first."""

    def __init__(self, answers: Answers | None = None) -> None:
        self._answer = None if answers is None else _answering(answers)
        self._apps: list[tuple[Backburner, Any, bool]] = []

    def use(self, app: Any) -> InlineTasks:
        """Run the tasks of this app inline from now on: of a Backburner, or of a server with one attached."""
        found = app_of(app)
        if found is None:
            raise InvalidRequest(reason=f"{app!r} is neither a Backburner app nor a server with one attached")
        found.close()
        self._apps.append((found, found.settings, found.quiet))
        found.settings = dataclasses.replace(
            found.settings, store="sqlite://", data_dir="", artifacts=ArtifactSettings()
        )
        found.quiet = True
        clock = InlineClock()
        parts = vars(found)
        parts.pop("data_dir", None)
        parts["store"] = open_store("sqlite://", clock=clock, synchronous="normal")
        parts["engine"] = InlineEngine(found, clock, self._answer)
        return self

    @property
    def app(self) -> Backburner:
        """Raises InvalidRequest when no app is used yet."""
        if not self._apps:
            raise InvalidRequest(reason="name the app first: inline(app), or use(app)")
        return self._apps[0][0]

    def run(self, tool_name: str, /, **inputs: Any) -> InlineTask:
        """Run a tool to its end, or to an open question. Raises what `submit` raises."""
        return InlineTask(self.app, self.app.service.submit(tool_name, inputs).task_id)

    def start(self, tool_name: str, /, **inputs: Any) -> InlineTask:
        """As `run`, without waiting: to look at a tool while it runs, or to cancel it."""
        engine = self.app.engine
        assert isinstance(engine, InlineEngine), "`use` has set it"
        engine.waits = False
        try:
            return self.run(tool_name, **inputs)
        finally:
            engine.waits = True

    def all(self) -> list[InlineTask]:
        """Every task so far, oldest first; also those that MCP clients have made."""
        page = self.app.service.list(owner=None, limit=500).tasks
        return [InlineTask(self.app, task.task_id) for task in reversed(page)]

    def close(self) -> None:
        """End what still runs, and give the apps back as they were."""
        while self._apps:
            app, settings, quiet = self._apps.pop()
            app.close()
            vars(app).pop("data_dir", None)
            app.settings, app.quiet = settings, quiet


class InlineTask:
    """One task, as a test looks at it. All of it is read from the store, so also while it runs."""

    def __init__(self, app: Backburner, task_id: str) -> None:
        self._app = app
        self.task_id = task_id

    @property
    def task(self) -> Task:
        """The whole record: inputs, attempts, tags and all."""
        return self._app.store.get(self.task_id)

    @property
    def state(self) -> State:
        return self.task.state

    @property
    def result(self) -> Any:
        """The tool's result as JSON data. Raises NotFinished."""
        return self._app.service.result(self.task_id, owner=None).task.result

    @property
    def error(self) -> TaskError | None:
        return self.task.error

    @property
    def progress(self) -> list[Progress]:
        """All that the tool said of its progress, in order."""
        return self._engine.progress.get(self.task_id, [])

    @property
    def checkpoints(self) -> list[Any]:
        """All that the tool kept for its next attempt, in order."""
        return self._engine.checkpoints.get(self.task_id, [])

    @property
    def log(self) -> list[str]:
        """The lines that the tool wrote by `ctx.log`. What it prints goes where the test's output goes."""
        return [line.message for line in self._app.store.logs(self.task_id, limit=100_000)]

    @property
    def artifacts(self) -> dict[str, bytes]:
        """The files that the tool kept, by name."""
        kept = self._app.store.artifacts(self.task_id)
        return {each.name: self._app.artifacts.read(each) for each in kept}

    @property
    def questions(self) -> dict[str, str]:
        """Open questions: the message of each by its key."""
        asked = self._app.service.status(self.task_id, owner=None).questions
        return {each.key: str(each.params.get("message", each.method)) for each in asked}

    def answer(self, *contents: Reply) -> InlineTask:
        """Answer the open questions, in order, and wait as `run` does. None declines."""
        replies = {key: reply_of(content) for key, content in zip(self.questions, contents, strict=True)}
        self._app.service.answer_input(self.task_id, replies, owner=None)
        return self.wait()

    def cancel(self) -> InlineTask:
        """Have the task cancelled, and wait for it to end."""
        self._app.service.cancel(self.task_id, owner=None)
        return self.wait()

    def wait(self, timeout_s: float = PATIENCE_S) -> InlineTask:
        """Wait until the task is finished, or asks what the test has to answer. Raises TimeoutError."""
        self._engine.wait(self.task_id, timeout_s)
        return self

    @property
    def _engine(self) -> InlineEngine:
        engine = self._app.engine
        assert isinstance(engine, InlineEngine), "`use` has set it"
        return engine


def _answering(answers: Answers) -> Answer:
    if callable(answers):
        return answers
    left = iter(answers)

    def next_answer(message: str, schema: Mapping[str, Any]) -> Reply:
        try:
            return next(left)
        except StopIteration:
            raise InvalidRequest(reason=f"the test has no answer left for the question {message!r}") from None

    return next_answer
