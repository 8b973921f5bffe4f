"""Waiting for tasks, one or many: no longer than the client does, and telling only what it does not know."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from ....errors import InvalidRequest, StoreBusy, StoreUnavailable
from ....lifecycle import TERMINAL, State
from ....service import TaskStatus
from ....task import TaskHead
from ...access import TaskAccess, present
from ...following import changes_of
from ...outbox import notification
from ...progress_tokens import ProgressUpdate, Scale
from ...request import RequestContext, owner_of_request, request_meta
from ...showing import text_block
from .cursor import Told
from .describing import Answer, in_a_line, in_short
from .patient_waits import PatientWaits, Wait
from .schemas import LONGEST_WAIT_S
from .wire import ANSWER_TASK, WAIT_FOR_TASK

_TRY_AGAIN_S = 1.0


class Waiting:
    """`wait_for_task`."""

    def __init__(self, access: TaskAccess) -> None:
        self._access = access
        self.patient = PatientWaits(access.patience)

    async def wait(self, ctx: RequestContext, arguments: Mapping[str, Any]) -> Answer:
        """The answer is there when there is something to tell, and within the client's patience.

        What ends a wait is that a task ends, or asks. How far the others are is told then, too.
        """
        task_id, several = arguments.get("task_id"), arguments.get("task_ids")
        if (task_id is None) == (several is None):
            raise InvalidRequest(reason="give task_id, or task_ids for several tasks, and not both")
        await self._access.patience.refresh()
        limit_s = self._limit_s(ctx, arguments.get("timeout_s"))
        async with self.patient.waiting(ctx) as wait:
            if task_id is not None:
                await self._until(ctx, wait, [task_id], Told({}), limit_s, for_all=False)
                return await self._one(task_id)
            task_ids = list(dict.fromkeys(several or ()))
            told, for_all = Told.in_cursor(arguments.get("cursor")), arguments.get("for") == "all"
            heads = await self._until(ctx, wait, task_ids, told, limit_s, for_all=for_all)
            return await self._many(heads, told)

    def _limit_s(self, ctx: RequestContext, asked_s: float | None) -> float:
        limits = (asked_s, self._access.patience.hold_s(ctx), float(LONGEST_WAIT_S))
        return min(limit for limit in limits if limit is not None)

    # -- waiting

    async def _until(
        self,
        ctx: RequestContext,
        wait: Wait,
        task_ids: Sequence[str],
        told: Told,
        limit_s: float,
        *,
        for_all: bool,
    ) -> Mapping[str, TaskHead]:
        """How the tasks are when there is news of them, or when time is over."""
        end = time.monotonic() + limit_s
        every_s = self._access.patience.limits_of(ctx).heartbeat_s
        heads = await self._access.heads(task_ids)
        async with (
            changes_of(self._access.service, task_ids) as changed,
            _beating(ctx, wait, heads, every_s) as beat,
        ):
            while True:
                changed.clear()
                left_s = end - time.monotonic()
                try:
                    heads = await self._access.heads(task_ids)
                    if left_s <= 0 or await self._is_news(heads, told, for_all=for_all):
                        return heads
                    await beat.say(heads)
                except (StoreUnavailable, StoreBusy):
                    if left_s <= 0:
                        raise
                    left_s = min(left_s, _TRY_AGAIN_S)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), left_s)

    async def _is_news(self, heads: Mapping[str, TaskHead], told: Told, *, for_all: bool) -> bool:
        unfinished = [head for head in heads.values() if head.state not in TERMINAL]
        if not unfinished:
            return True
        if not for_all and any(
            head.state in TERMINAL and not told.has_end_of(head) for head in heads.values()
        ):
            return True
        asking = [head.task_id for head in unfinished if head.state is State.INPUT_REQUIRED]
        return any([not told.has(await self._access.status(task_id)) for task_id in asking])

    # -- telling

    async def _one(self, task_id: str) -> Answer:
        status = await self._access.status(task_id)
        if status.task.finished:
            return await self._ended(status)
        line = in_a_line(status)
        again = f"Call {self._tool(WAIT_FOR_TASK)} again with task_id {task_id}."
        words = [f"{status.task.tool_name} is not finished: {line['status']}.", *self._how_to_answer(status)]
        return Answer(line, [text_block(" ".join([*words, again]))])

    async def _many(self, heads: Mapping[str, TaskHead], told: Told) -> Answer:
        """What is new of them. Results that are too much for one answer are left for the next."""
        unknown = [task_id for task_id, head in heads.items() if not told.has_end_of(head)]
        statuses = await self._access.service.aio.run(self._statuses, unknown, owner_of_request())
        tasks: list[Mapping[str, Any]] = []
        content: list[Mapping[str, Any]] = []
        room, more = self._access.showing.text_bytes, False
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
        return Answer(body, [*content, text_block(self._what_next(len(heads), unfinished, more, cursor))])

    async def _news(self, status: TaskStatus) -> Answer:
        task = status.task
        if not task.finished:
            line = in_a_line(status)
            words = f"{task.task_id} ({task.tool_name}) is not finished: {line['status']}."
            return Answer(line, [text_block(" ".join([words, *self._how_to_answer(status)]))])
        ended = await self._ended(status)
        head = text_block(f"{task.task_id} ({task.tool_name}) {task.state}:")
        return Answer(ended.body, [head, *ended.content])

    async def _ended(self, status: TaskStatus) -> Answer:
        service, showing, links = self._access.service, self._access.showing, self._access.links
        result = await service.aio.result(status.task_id, owner=owner_of_request())
        self._access.open_calls.close(status.task_id)
        return await service.aio.run(in_short, result, showing, links)

    def _statuses(self, task_ids: Sequence[str], owner: str) -> list[TaskStatus]:
        return [present(self._access.service.status(task_id, owner=owner)) for task_id in task_ids]

    def _how_to_answer(self, status: TaskStatus) -> list[str]:
        if not status.questions or self._access.app.tools.asks(status.task.tool_name) != "anyone":
            return []
        return [f"It waits for your answer: call {self._tool(ANSWER_TASK)}."]

    def _what_next(self, tasks: int, unfinished: int, more: bool, cursor: str) -> str:
        if not unfinished and not more:
            return f"All {tasks} tasks are finished."
        what = "There are more results." if more else f"{unfinished} of {tasks} tasks are not finished."
        return f"{what} Call {self._tool(WAIT_FOR_TASK)} again with the same task_ids and cursor {cursor}"

    def _tool(self, name: str) -> str:
        return self._access.settings.mcp.task_tools_prefix + name


def _bytes(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())


class _Beat:
    """`notifications/progress` for a wait, if its client gave a token for it: how many tasks have ended."""

    def __init__(self, ctx: RequestContext, wait: Wait, heads: Mapping[str, TaskHead]) -> None:
        given = request_meta(ctx).get("progressToken")
        self._ctx, self._wait, self._heads = ctx, wait, heads
        self._token = given if isinstance(given, str | int) else None
        self._scale = Scale()

    async def say(self, heads: Mapping[str, TaskHead], *, anyway: bool = False) -> None:
        self._heads = heads
        if self._token is None:
            return
        ended = sum(head.state in TERMINAL for head in heads.values())
        update = ProgressUpdate(absolute=(ended, len(heads)), message=f"{ended} of {len(heads)} finished")
        params = self._scale.params(self._token, update, anyway=anyway)
        if params is not None:
            message = notification("notifications/progress", params)
            await self._ctx.session.send_notification(message, self._ctx.request_id)
            self._wait.spoke = time.monotonic()

    async def go_on(self, every_s: float) -> None:
        """Say that the wait goes on: some clients' clocks restart on progress."""
        while True:
            await asyncio.sleep(every_s)
            await self.say(self._heads, anyway=True)


@contextlib.asynccontextmanager
async def _beating(
    ctx: RequestContext, wait: Wait, heads: Mapping[str, TaskHead], every_s: float
) -> AsyncIterator[_Beat]:
    beat = _Beat(ctx, wait, heads)
    going_on = asyncio.ensure_future(beat.go_on(every_s))
    try:
        yield beat
    finally:
        going_on.cancel()
