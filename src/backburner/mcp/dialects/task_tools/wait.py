"""The `wait_for_task` tool: waits for one or many tasks; a cursor marks what was reported."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from hashlib import blake2b
from typing import Any

from ....core.lifecycle import TERMINAL, State
from ....core.task import TaskHead
from ....errors import InvalidRequest, StoreBusy, StoreUnavailable
from ....service.tasks import TaskStatus
from ...access import TaskAccess, unexpired
from ...client_timeouts import LATE_S, TimeoutPolicy, may_be_timeout, requesting_client
from ...notifications import ProgressReporter
from ...progress import ProgressScale, ProgressUpdate
from ...requests import RequestContext, has_left, owner_of_request, request_meta
from ...results import text_block
from ...sdk import stream_of
from ...updates import changes_of
from .answers import Answer, compact_result, compact_status
from .wire import ANSWER_TASK, WAIT_FOR_TASK

_LONGEST_WAIT_S = 3600.0
#: A cursor begins with random bytes, so that no two are the same: hosts end a loop of identical calls.
_RANDOM_BYTES, _TASK_BYTES, _TOLD_BYTES = 3, 4, 2
#: Bit that marks a reported end, so that a hash collision cannot hide one.
_OVER = 0x80
_STEPS = 4


class WaitCursor:
    """The last reported status of each task, as a hash."""

    def __init__(self, told: Mapping[bytes, bytes]) -> None:
        self._told = dict(told)

    @classmethod
    def in_cursor(cls, cursor: Any) -> WaitCursor:
        """Parse a cursor. One that means nothing is ignored."""
        try:
            packed = base64.b64decode(cursor, altchars=b"-_", validate=True)
        except (ValueError, TypeError):
            return cls({})
        each = _TASK_BYTES + _TOLD_BYTES
        parts = (packed[at : at + each] for at in range(_RANDOM_BYTES, len(packed), each))
        return cls({part[:_TASK_BYTES]: part[_TASK_BYTES:] for part in parts})

    def cursor(self) -> str:
        """Return a new cursor, which differs from every other."""
        packed = b"".join(task + told for task, told in self._told.items())
        return base64.b64encode(os.urandom(_RANDOM_BYTES) + packed, altchars=b"-_").decode()

    def has_end_of(self, head: TaskHead) -> bool:
        """Return whether the end of a finished task was reported."""
        return self._told.get(_task(head.task_id)) == _end(head.state, head.attempt)

    def has(self, status: TaskStatus) -> bool:
        """Return whether the current status was reported, apart from small steps of progress."""
        return self._told.get(_task(status.task_id)) == _now(status)

    def add(self, status: TaskStatus) -> None:
        self._told[_task(status.task_id)] = _now(status)


def cursor_after(status: TaskStatus) -> str:
    """Return the cursor of a caller that was told this status."""
    told = WaitCursor({})
    told.add(status)
    return told.cursor()


def _now(status: TaskStatus) -> bytes:
    task = status.task
    if task.finished:
        return _end(task.state, task.attempt)
    done = ProgressUpdate.of(task.progress).part or 0.0
    phase = task.progress.phase if task.progress else None
    asked = sorted(question.key for question in status.questions)
    told = bytearray(_digest(repr((str(task.state), task.attempt, phase, int(done * _STEPS), asked))))
    told[0] &= ~_OVER
    return bytes(told)


def _end(state: State, attempt: int) -> bytes:
    told = bytearray(_digest(f"{state} {attempt}"))
    told[0] |= _OVER
    return bytes(told)


def _task(task_id: str) -> bytes:
    return blake2b(task_id.encode(), digest_size=_TASK_BYTES).digest()


def _digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=_TOLD_BYTES).digest()


class PendingWaits:
    """Pending waits of one server by connection and request, to learn client timeouts."""

    def __init__(self, patience: TimeoutPolicy) -> None:
        self._patience = patience
        self._waits: dict[tuple[int, Any], tuple[RequestContext, ProgressReporter]] = {}

    @asynccontextmanager
    async def waiting(self, ctx: RequestContext, wait: ProgressReporter) -> AsyncIterator[None]:
        """Register a wait for this block."""
        key, keep_s = (stream_of(ctx.session), ctx.request_id), 0.0
        self._waits[key] = ctx, wait
        try:
            yield
            if await has_left(ctx):
                await self._patience.note_timeout(ctx, wait.waited_s, wait.silent_s)
            else:
                await self._patience.note_delivered(ctx, wait.waited_s)
        except asyncio.CancelledError:
            keep_s = LATE_S
            if may_be_timeout(ctx, wait.waited_s):
                self._patience.note_timeout_soon(ctx, wait.waited_s, wait.silent_s)
            raise
        finally:
            asyncio.get_running_loop().call_later(keep_s, self._waits.pop, key, None)

    async def cancelled(self, ctx: RequestContext) -> None:
        """Learn from a cancelled wait if the client's timeout ended it."""
        said = ctx.params or {}
        request_id = said.get("requestId")
        if not isinstance(request_id, str | int):
            return
        waiting, wait = self._waits.pop((stream_of(ctx.session), request_id), (ctx, None))
        client = requesting_client(ctx)
        if wait is not None and self._patience.is_timeout(client, said.get("reason"), wait.waited_s):
            await self._patience.note_timeout(waiting, wait.waited_s, wait.silent_s)


_TRY_AGAIN_S = 1.0


class WaitHandler:
    """Handler of `wait_for_task`."""

    def __init__(self, access: TaskAccess) -> None:
        self._access = access
        self.patient = PendingWaits(access.patience)

    async def wait(self, ctx: RequestContext, arguments: Mapping[str, Any]) -> Answer:
        """Return when a task ends or asks a question, or before the client times out.

        The answer also has the progress of the other tasks.
        """
        task_id, several = arguments.get("task_id"), arguments.get("task_ids")
        if (task_id is None) == (several is None):
            raise InvalidRequest(reason="give task_id, or task_ids for several tasks, and not both")
        await self._access.patience.refresh()
        limits = arguments.get("timeout_s"), self._access.patience.hold_s(ctx), _LONGEST_WAIT_S
        limit_s = min(limit for limit in limits if limit is not None)
        given = request_meta(ctx).get("progressToken")
        token = given if isinstance(given, str | int) else None
        progress = ProgressReporter(ctx, token, ProgressScale(), ProgressUpdate(absolute=(0, None)))
        told, for_all = WaitCursor.in_cursor(arguments.get("cursor")), arguments.get("for") == "all"
        async with self.patient.waiting(ctx, progress):
            if task_id is not None:
                await self._until(ctx, progress, [task_id], told, limit_s, for_all=False)
                return await self._one(task_id)
            task_ids = list(dict.fromkeys(several or ()))
            heads = await self._until(ctx, progress, task_ids, told, limit_s, for_all=for_all)
            return await self._many(heads, told)

    # -- waiting

    async def _until(
        self,
        ctx: RequestContext,
        progress: ProgressReporter,
        task_ids: Sequence[str],
        told: WaitCursor,
        limit_s: float,
        *,
        for_all: bool,
    ) -> Mapping[str, TaskHead]:
        """Return the heads of the tasks when there is news, or when the time is over."""
        end = time.monotonic() + limit_s
        every_s = self._access.patience.limits_of(ctx).heartbeat_s
        await self._access.heads(task_ids)  # raises TaskNotFound before waiting
        async with (
            changes_of(self._access.service, task_ids) as changed,
            progress.repeating(every_s),
        ):
            while True:
                changed.clear()
                left_s = end - time.monotonic()
                try:
                    heads = await self._access.heads(task_ids)
                    if left_s <= 0 or await self._is_news(heads, told, for_all=for_all):
                        return heads
                    await progress.send(_finished(heads))
                except (StoreUnavailable, StoreBusy):
                    if left_s <= 0:
                        raise
                    left_s = min(left_s, _TRY_AGAIN_S)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), left_s)

    async def _is_news(self, heads: Mapping[str, TaskHead], told: WaitCursor, *, for_all: bool) -> bool:
        unfinished = [head for head in heads.values() if head.state not in TERMINAL]
        if not unfinished:
            return True
        if not for_all and any(
            head.state in TERMINAL and not told.has_end_of(head) for head in heads.values()
        ):
            return True
        asking = [head.task_id for head in unfinished if head.state is State.INPUT_REQUIRED]
        return any([not told.has(await self._access.status(task_id)) for task_id in asking])

    # -- answers

    async def _one(self, task_id: str) -> Answer:
        status = await self._access.status(task_id)
        if status.task.finished:
            return await self._ended(status)
        line, cursor = compact_status(status), cursor_after(status)
        again = f"Call {WAIT_FOR_TASK} again with task_id {task_id} and cursor {cursor}"
        then = " ".join([*self._how_to_answer(status), again])
        words = f"{status.task.tool_name} is not finished: {line['status']}. {then}"
        return Answer({**line, "cursor": cursor, "next": then}, [text_block(words)])

    async def _many(self, heads: Mapping[str, TaskHead], told: WaitCursor) -> Answer:
        """Return the news; results that do not fit into one answer are left for the next."""
        unknown = [task_id for task_id, head in heads.items() if not told.has_end_of(head)]
        statuses = await self._access.service.aio.run(self._statuses, unknown, owner_of_request())
        tasks: list[Mapping[str, Any]] = []
        content: list[Mapping[str, Any]] = []
        room, more = self._access.presenter.text_bytes, False
        for status in statuses:
            if told.has(status):
                continue
            answer = await self._news(status)
            size = max(_bytes(answer.body), _bytes(answer.content))
            if room is not None and tasks and size > room:
                more = more or status.task.finished
                continue
            room = None if room is None else room - size
            told.add(status)
            tasks.append(answer.body)
            content += answer.content
        unfinished = sum(head.state not in TERMINAL for head in heads.values())
        finished, cursor = not unfinished and not more, told.cursor()
        body = {"finished": finished, "unfinished": unfinished, "tasks": tasks, "cursor": cursor}
        then = self._what_next(len(heads), unfinished, more, cursor)
        return Answer(body if finished else {**body, "next": then}, [*content, text_block(then)])

    async def _news(self, status: TaskStatus) -> Answer:
        task = status.task
        if not task.finished:
            line = compact_status(status)
            words = f"{task.task_id} ({task.tool_name}) is not finished: {line['status']}."
            return Answer(line, [text_block(" ".join([words, *self._how_to_answer(status)]))])
        ended = await self._ended(status)
        head = text_block(f"{task.task_id} ({task.tool_name}) {task.state}:")
        return Answer(ended.body, [head, *ended.content])

    async def _ended(self, status: TaskStatus) -> Answer:
        service, presenter, links = self._access.service, self._access.presenter, self._access.links
        result = await service.aio.result(status.task_id, owner=owner_of_request())
        await self._access.delivered(result.task)
        return await service.aio.run(compact_result, result, presenter, links)

    def _statuses(self, task_ids: Sequence[str], owner: str) -> list[TaskStatus]:
        return [unexpired(self._access.service.status(task_id, owner=owner)) for task_id in task_ids]

    def _how_to_answer(self, status: TaskStatus) -> list[str]:
        if not status.questions or self._access.app.tools.asks(status.task.tool_name) != "anyone":
            return []
        return [f"It waits for your answer: call {ANSWER_TASK}."]

    def _what_next(self, tasks: int, unfinished: int, more: bool, cursor: str) -> str:
        if not unfinished and not more:
            return f"All {tasks} tasks are finished."
        what = "There are more results." if more else f"{unfinished} of {tasks} tasks are not finished."
        return f"{what} Call {WAIT_FOR_TASK} again with the same task_ids and cursor {cursor}"


def _bytes(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())


def _finished(heads: Mapping[str, TaskHead]) -> ProgressUpdate:
    ended = sum(head.state in TERMINAL for head in heads.values())
    return ProgressUpdate(absolute=(ended, len(heads)), message=f"{ended} of {len(heads)} finished")
