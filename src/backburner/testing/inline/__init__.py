"""The inline mode: an app's tasks run in the process of a test; no other is started, no file is left.

    with inline(bb) as tasks:
        done = tasks.run("simulate", steps=3)
        assert done.result == {"energy_ev": -0.3}

All but the processes is as ever: the same context, service and store (a temporary one), retries, questions,
and MCP clients, so also `mcp.Client(server)`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ... import birthplace
from ...app import Backburner
from ...config import ArtifactSettings
from ...errors import InvalidRequest
from ...lifecycle import State
from ...stores import open_store
from ...target import app_of
from ...task import Progress, Task, TaskError
from .engine import PATIENCE_S, Answer, InlineClock, InlineEngine, Reply, reply_of

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
    birthplace.not_needed += 1
    try:
        for app in apps:
            tasks.use(app)
        yield tasks
    finally:
        birthplace.not_needed -= 1
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
        """Run a tool to its end, or to a question that nobody has answered. Raises what `submit` does."""
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
        """What the tool returned, as JSON has it. Raises NotFinished."""
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
        """What waits for an answer: the message of each question by its key."""
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
