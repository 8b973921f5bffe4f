"""TaskHandle: one task on a server, to watch, to steer, and to read back later."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import mcp_types as types

from ..client_errors import NotOffered
from ..mcp.client_dialect import Bell, Conversation
from ..mcp.dialects.task_tools.client import TaskToolsClient
from ..mcp.updates import LogLine, Update
from .artifacts import RemoteArtifact
from .handle_file import HandleFile, OpenHandle

#: How long a server is believed that says it will tell, before it is asked all the same.
_TRUST_S = 30.0
#: How often a server is asked that does not say how often: more and more seldom.
_FIRST_POLL_S, _GROWTH, _POLL_S = 0.05, 1.5, 2.0

OnUpdate = Callable[[Update], Any]
#: Answers questions, by their keys; None where that is left to `TaskHandle.answer`.
Answering = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class TaskHandle:
    """A task. It stays good through lost connections and restarts, on either side."""

    def __init__(
        self,
        kept: OpenHandle,
        conversation: Conversation,
        tools: TaskToolsClient,
        *,
        file: HandleFile | None = None,
        answering: Answering | None = None,
    ) -> None:
        self._kept = kept
        self._conversation = conversation
        self._tools = tools
        self._file = file
        self._answering = answering
        self._answered: set[str] = set()
        self._result = None if kept.result is None else types.CallToolResult.model_validate(kept.result)

    def __repr__(self) -> str:
        return f"<TaskHandle {self.task_id} of {self.tool_name}, by {self._conversation.name}>"

    @property
    def task_id(self) -> str:
        return self._kept.task_id

    @property
    def tool_name(self) -> str:
        return self._kept.tool_name

    @property
    def dialect(self) -> str:
        """How the server speaks of it: `2026-07-28`, `2025-11-25`, `two-stage`, `task-id` or `inline`."""
        return self._conversation.name

    #: The older name of `dialect`.
    speech = dialect

    def listening(self) -> contextlib.AbstractAsyncContextManager[Bell]:
        """A bell that rings when the server says that there may be news of the task."""
        return self._conversation.listening(self.task_id)

    # -- reading

    async def status(self) -> Update:
        """Where the task is now. Raises MCPError if the server does not know it, and ConnectionLost."""
        if self._result is not None:
            return Update(self.task_id, "completed", result=self._result)
        update = await self._conversation.read(self.task_id)
        if update.result is not None:
            self._result = update.result
            self._note(synced=True, result=update.result.model_dump(by_alias=True, mode="json"))
        if update.progress is None and not update.finished:
            with contextlib.suppress(NotOffered):
                update = replace(update, progress=await self._tools.progress(self.task_id))
        return update

    async def watch(self) -> AsyncGenerator[Update]:
        """What changes, from now to the end, which is always the last update; each is given once.

        By notification where the server sends them, else by asking as often as it wishes. What
        was in between while nobody looked is not told, the end always is. An update counts as
        seen when the next one is asked for; with a file of handles this holds in a restarted
        program, too.
        """
        delay_s = _FIRST_POLL_S
        async with self.listening() as bell:
            while True:
                bell.event.clear()
                update = await self.status()
                for told in _in_order(bell.told, update):
                    if told.fingerprint != self._kept.seen:
                        yield told
                        self._note(seen=told.fingerprint)
                if update.finished:
                    if update.result is None:
                        self.forget()  # the server has it, for whoever asks by the id
                    return
                if await self._saw_to_questions(update):
                    continue
                delay_s = min(_GROWTH * delay_s, _POLL_S)
                wait_s = _TRUST_S if bell.trusted else update.poll_s or delay_s
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(bell.event.wait(), wait_s)

    async def result(self, on_update: OnUpdate | None = None) -> types.CallToolResult:
        """Wait for the end, and give the result of the call.

        A tool's own error is a result with `is_error`. Raises MCPError where the call itself would
        have, TaskWasCancelled and ConnectionLost. Cancelling the wait leaves the task alone.
        """
        async with contextlib.aclosing(self.watch()) as updates:
            async for update in updates:
                if on_update is not None:
                    told = on_update(update)
                    if isinstance(told, Awaitable):
                        await told
        if self._result is None:
            self._result = await self._conversation.result(self.task_id)
        self.forget()
        return self._result

    async def logs(self, *, follow: bool = False) -> AsyncGenerator[LogLine]:
        """The lines that the tool has written since they were last read here, each once.

        With `follow`, also those to come until the task is finished. Raises NotOffered.
        """
        finished = not follow
        while True:
            cursor = self._kept.log_cursor
            lines, next_cursor, more = await self._tools.logs(self.task_id, cursor)
            for line in lines:
                yield line
            if next_cursor != cursor:
                self._note(log_cursor=next_cursor)
            if more:
                continue
            if finished:
                return
            update = await self._conversation.read(self.task_id)
            finished = update.finished  # then what it wrote last is read once more
            if not finished:
                await asyncio.sleep(min(update.poll_s or _POLL_S, _POLL_S))

    async def artifacts(self) -> list[RemoteArtifact]:
        """The files that the task has made so far; some servers tell only at its end. Raises NotOffered."""
        found = await self._tools.artifacts(self.task_id)
        return [RemoteArtifact.of(shown, self._tools.connection) for shown in found]

    # -- steering

    async def cancel(self) -> None:
        """Ask for its end. Harmless when it is over already."""
        await self._conversation.cancel(self.task_id)

    async def answer(self, answers: Mapping[str, Any]) -> None:
        """Answer questions: by their keys, `{"action": "accept", "content": {…}}` or the content alone."""
        await self._conversation.answer(self.task_id, {key: _answer(value) for key, value in answers.items()})

    async def _saw_to_questions(self, update: Update) -> bool:
        new = {key: dict(asked) for key, asked in update.questions.items() if key not in self._answered}
        if self._answering is None or not new:
            return False
        self._answered.update(new)
        with contextlib.suppress(NotOffered):
            await self._conversation.answer(self.task_id, await self._answering(new))
        return True

    # -- surviving

    def forget(self) -> None:
        """Take it out of the file of open handles. The task itself is not touched."""
        if self._file is not None:
            self._file.forget(self.task_id)
            self._file = None

    def _note(self, *, synced: bool = False, **changes: Any) -> None:
        self._kept = replace(self._kept, **changes)
        if self._file is not None:
            # A note that is lost in a power cut mostly costs an update told twice, so it is not waited for.
            self._file.keep(self._kept, synced=synced)


def _in_order(told: deque[Update], update: Update) -> Iterator[Update]:
    """What the server told by itself, and then where the task is, unless what was told is newer."""
    newer = bool(told)
    while told:
        yield told.popleft()
    if update.finished or not newer:
        yield update


def _answer(value: Any) -> Any:
    if isinstance(value, Mapping) and value.get("action") in ("accept", "decline", "cancel"):
        return dict(value)
    return {"action": "accept", "content": value}
