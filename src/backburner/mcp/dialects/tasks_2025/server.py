"""Server side of the 2025-11-25 tasks: `tasks/*` methods, status notifications and questions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp_types.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND

from ....core.lifecycle import State
from ....core.task import InputRequest, Task
from ....errors import BackburnerError, InvalidAnswer, TaskNotFound
from ....observability.logging import about
from ....service.tasks import TaskService, TaskStatus
from ....tools.spec import ToolSpec
from ...access import TaskAccess
from ...errors import jsonrpc_errors, task_failure
from ...notifications import Outbox, outbox_of
from ...progress import CallToken, ProgressUpdate
from ...questions import ask_client, declined
from ...requests import RequestContext, owner_of_request
from ...results import tool_raised
from ...updates import as_deleted, follow
from ..server import Method, ServerDialect, SlowCall
from . import wire

logger = logging.getLogger(__name__)

#: A client that sees `input_required` either waits in `tasks/result`, and is asked there, or keeps polling.
#: Time after a poll in which `tasks/result` may follow, before questions are sent outside requests.
_PARKING_S = 0.3
#: The same for a client that does not poll.
_POLLING_S = 2.0


class TaskSubscriber:
    """Sends status, progress and questions of one task to the session that uses it."""

    def __init__(self, access: TaskAccess, status: TaskStatus, token: CallToken | None) -> None:
        self._access = access
        self._last = status
        self._asker = QuestionSender(access.service, status.task)
        self._token = token
        self._parked: list[RequestContext] = []
        self._ctx: RequestContext | None = None
        self._outbox: Outbox | None = None
        self._ask_timer: asyncio.TimerHandle | None = None
        self.done = asyncio.ensure_future(self._attend())

    def meet(self, ctx: RequestContext) -> None:
        """Subscribe the session that last asked about the task."""
        self._ctx, self._outbox = ctx, outbox_of(ctx)

    def polled(self) -> None:
        """Note that the client has seen `input_required`."""
        self._ask_later(_PARKING_S)

    async def park(self, ctx: RequestContext) -> TaskStatus:
        """Wait for the end of the task, as `tasks/result` does; questions go out on its stream."""
        self._parked.append(ctx)
        self._ask_parked()
        try:
            return await asyncio.shield(self.done)
        finally:
            self._parked.remove(ctx)
            if not self._parked:
                self._asker.leave(request=True)

    async def _attend(self) -> TaskStatus:
        task = self._last.task
        before = None
        try:
            async for status in follow(self._access.service, task.task_id, task.owner):
                self._last = status
                before = self._push_status(status, before)
                self._push_progress(status)
                if status.questions:
                    self._ask_parked()
                    self._ask_later(_POLLING_S)
        except TaskNotFound:
            self._last = as_deleted(self._last)
            self._push_status(self._last, before)
        self._asker.leave(request=False)
        return self._last

    def _push_status(self, status: TaskStatus, before: str | None) -> str:
        shown = wire.task_shown(status)
        now: str = shown["status"]
        if self._outbox is not None and now != before:
            self._outbox.put(f"status {status.task_id}", wire.NEWS, shown)
        return now

    def _push_progress(self, status: TaskStatus) -> None:
        token, progress = self._token, status.task.progress
        if token is None or token.given is None or self._outbox is None or progress is None:
            return
        params = token.scale.params(token.given, ProgressUpdate.of(progress))
        if params is not None:
            about = {**params["_meta"], **wire.related(status.task_id)}
            subject = f"progress {status.task_id}"
            self._outbox.put(subject, "notifications/progress", {**params, "_meta": about})

    def _ask_parked(self) -> None:
        if self._parked and self._last.questions:
            ctx = self._parked[-1]
            self._asker.ask(list(self._last.questions), ctx.session, ctx.request_id)

    def _ask_later(self, delay_s: float) -> None:
        """Ask outside any request, unless a `tasks/result` comes first."""
        due = asyncio.get_running_loop().time() + delay_s
        if self._ask_timer is not None:
            if self._ask_timer.when() <= due and not self._ask_timer.cancelled():
                return
            self._ask_timer.cancel()
        self._ask_timer = asyncio.get_running_loop().call_later(delay_s, self._ask_now)

    def _ask_now(self) -> None:
        self._ask_timer = None
        if self._last.questions and not self._parked and self._ctx is not None and not self.done.done():
            self._asker.ask(list(self._last.questions), self._ctx.session, None)


class QuestionSender:
    """Sends the open questions of one task; each is out in one place at a time.

    A question sent outside any request may never arrive. A request that can carry it takes it over, and the
    first answer counts.
    """

    def __init__(self, service: TaskService, task: Task) -> None:
        self._service, self._task_id, self._owner = service, task.task_id, task.owner
        self._asks = service.tools.asks(task.tool_name)
        self._out: dict[str, tuple[asyncio.Task[None], bool]] = {}
        self._answered: set[str] = set()

    def ask(
        self, questions: list[InputRequest], session: ServerSession, request_id: types.RequestId | None
    ) -> None:
        """Send the questions that are not out yet, on the stream of that request or outside any."""
        for question in questions:
            if question.key in self._answered:
                continue  # the status is older than the answer
            asking, on_request = self._out.get(question.key, (None, False))
            if asking is not None and (on_request or request_id is None):
                continue
            if asking is not None:
                asking.cancel()
            task = asyncio.ensure_future(self._ask(question, session, request_id))
            self._out[question.key] = (task, request_id is not None)

    def leave(self, *, request: bool) -> None:
        """Stop waiting for answers, on request streams or outside them."""
        for key, (asking, on_request) in list(self._out.items()):
            if on_request == request:
                asking.cancel()
                self._out.pop(key, None)

    async def _ask(
        self, question: InputRequest, session: ServerSession, request_id: types.RequestId | None
    ) -> None:
        """Send one question and store its answer. If it cannot be sent, it stays open."""
        try:
            answer = await ask_client(
                question, session, request_id, wire.related(self._task_id), asks=self._asks
            )
            await self._service.aio.answer_input(self._task_id, {question.key: answer}, owner=self._owner)
            self._answered.add(question.key)
        except InvalidAnswer:
            refused = declined(question.method, "the client's answer is not valid")
            await self._service.aio.answer_input(self._task_id, {question.key: refused}, owner=self._owner)
        except (NoBackChannelError, BackburnerError) as error:
            words = "Question %s of task %s stays unanswered: %s"
            logger.info(words, question.key, self._task_id, error, extra=about(self._task_id))
        except Exception:
            words = "The client of task %s disconnected before it answered"
            logger.info(words, self._task_id, exc_info=True, extra=about(self._task_id))
        finally:
            if self._out.get(question.key, (None,))[0] is asyncio.current_task():
                del self._out[question.key]


_PAGE = 50


class Tasks2025(ServerDialect):
    """For clients of that revision: a call with `task` becomes a task."""

    def __init__(self, access: TaskAccess) -> None:
        self._access = access
        self._attendants: dict[str, TaskSubscriber] = {}

    def methods(self) -> Mapping[str, Method]:
        return {
            wire.GET: Method(wire.TaskIdParams, self.get),
            wire.RESULT: Method(wire.TaskIdParams, self.result),
            wire.LIST: Method(wire.ListParams, self.list),
            wire.CANCEL: Method(wire.TaskIdParams, self.cancel),
        }

    def speaks(self, ctx: RequestContext) -> bool:
        return ctx.protocol_version == wire.NAME

    def announce(self, capabilities: dict[str, Any], version: str) -> None:
        if version == wire.NAME:
            capabilities["tasks"] = dict(wire.CAPABILITY)

    def describe(self, ctx: RequestContext, spec: ToolSpec, tool: dict[str, Any]) -> dict[str, Any]:
        if not self.speaks(ctx):
            return tool
        return wire.described(tool, "forbidden" if spec.task == "never" else spec.task)

    def refuse(self, ctx: RequestContext, tool_name: Any) -> None:
        if self._wants_task(ctx):
            raise MCPError(
                METHOD_NOT_FOUND, f"Tool {tool_name!r} cannot be called as a task: call it without `task`"
            )

    def takes(self, ctx: RequestContext, spec: ToolSpec) -> bool:
        if not self.speaks(ctx) or spec.requires_task_id:
            return False
        if spec.task == "never":
            self.refuse(ctx, spec.name)
        if spec.task == "required" and not self._wants_task(ctx):
            # Older revisions have no tasks: there the call is answered like any other.
            raise MCPError(
                METHOD_NOT_FOUND, f"Tool {spec.name!r} can only be called as a task: add `task` to the call"
            )
        return self._wants_task(ctx)

    def _wants_task(self, ctx: RequestContext) -> bool:
        return self.speaks(ctx) and wire.asked_for(ctx.params or {}) is not None

    async def answer(self, call: SlowCall) -> dict[str, Any]:
        """Return that revision's `CreateTaskResult`."""
        asked = wire.asked_for(call.ctx.params or {}) or {}
        with jsonrpc_errors():
            status = await self._access.submit(call.ctx, call.spec, ttl_s=wire.ttl_s(asked))
        self._attend(call.ctx, status, call.token)
        return wire.created(status)

    # -- methods

    async def get(self, ctx: RequestContext, params: wire.TaskIdParams) -> dict[str, Any]:
        with jsonrpc_errors():
            status = await self._access.polled(params.task_id)
        self._access.open_calls.touch(params.task_id)
        attendant = self._attend(ctx, status, None)
        if attendant is not None and status.task.state is State.INPUT_REQUIRED:
            attendant.polled()
        return wire.task_shown(status)

    async def result(self, ctx: RequestContext, params: wire.TaskIdParams) -> dict[str, Any]:
        """Wait for the end, asking the task's questions, and return the call's own result."""
        about = wire.related(params.task_id)
        with jsonrpc_errors():
            status = await self._access.polled(params.task_id)
            attendant = self._attend(ctx, status, None)
            if attendant is not None:
                with self._access.open_calls.held(params.task_id, ctx):
                    status = await attendant.park(ctx)
            task = status.task
            self._access.open_calls.close(task.task_id)
            if task.state is State.SUCCEEDED or tool_raised(task):
                outcome = await self._access.outcome(task)
                return {**outcome, "_meta": {**outcome.get("_meta", {}), **about}}
        if task.state is State.CANCELLED:
            why = f": {task.cancel_reason}" if task.cancel_reason else ""
            raise MCPError(INTERNAL_ERROR, f"The task was cancelled{why}", {"_meta": about})
        raise task_failure(task)

    async def list(self, ctx: RequestContext, params: wire.ListParams) -> dict[str, Any]:
        states = tuple(state for state in State if state is not State.EXPIRED)
        with jsonrpc_errors():
            service = self._access.service
            page = await service.aio.list(
                owner=owner_of_request(), states=states, cursor=params.cursor, limit=_PAGE
            )
            shown = await service.aio.run(lambda: [service.view(task) for task in page.tasks])
        result: dict[str, Any] = {"tasks": [wire.task_shown(status) for status in shown]}
        return result if page.next_cursor is None else {**result, "nextCursor": page.next_cursor}

    async def cancel(self, ctx: RequestContext, params: wire.TaskIdParams) -> dict[str, Any]:
        with jsonrpc_errors():
            status = await self._access.status(params.task_id)
            if status.task.finished:
                words = f"Cannot cancel task: it is {wire.status_of(status.task)} already"
                raise MCPError(INVALID_PARAMS, words)
            service, owner = self._access.service, owner_of_request()
            await service.aio.cancel(params.task_id, owner=owner)
            # This revision requires `cancelled` in the answer, so wait for the tool to stop.
            grace = self._access.settings.supervisor.cancel_grace_s + 2
            status = await service.aio.wait(params.task_id, grace, owner=owner)
        return wire.task_shown(status)

    # -- notifications

    def _attend(
        self, ctx: RequestContext, status: TaskStatus, token: CallToken | None
    ) -> TaskSubscriber | None:
        """Subscribe the session to the task, unless it is finished."""
        if status.task.finished:
            return None
        attendant = self._attendants.get(status.task_id)
        if attendant is None:
            attendant = TaskSubscriber(self._access, status, token)
            self._attendants[status.task_id] = attendant
            attendant.done.add_done_callback(lambda done: self._attended(status.task_id, done))
        attendant.meet(ctx)
        return attendant

    def _attended(self, task_id: str, done: asyncio.Future[TaskStatus]) -> None:
        self._attendants.pop(task_id, None)
        if not done.cancelled() and (error := done.exception()) is not None:
            logger.info("Notifications for task %s stopped: %s", task_id, error, extra=about(task_id))
