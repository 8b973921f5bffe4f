"""Who looks after a task for the session that cares for it: status, progress and questions go there."""

from __future__ import annotations

import asyncio
import logging

import mcp_types as types
from mcp.server.session import ServerSession
from mcp.shared.exceptions import NoBackChannelError

from ....errors import BackburnerError, InvalidAnswer
from ....log_lines import about
from ....service import TaskService, TaskStatus
from ....task import InputRequest, Task
from ...access import TaskAccess
from ...following import follow
from ...outbox import Outbox, outbox_of
from ...progress_tokens import CallToken, ProgressUpdate
from ...questions import declined, put
from ...request import RequestContext
from .wire import NEWS, related, task_shown

logger = logging.getLogger(__name__)

#: A client that sees `input_required` either parks a `tasks/result`, and is asked there, or goes on
#: polling and wants to be asked by itself. So long after a poll the second is taken to be the case.
_PARKING_S = 0.3
#: And so long a client that does not even poll has.
_POLLING_S = 2.0


class Attendant:
    """Follows one task for the session that cares for it: status, progress and questions go there."""

    def __init__(self, access: TaskAccess, status: TaskStatus, token: CallToken | None) -> None:
        self._access = access
        self._last = status
        self._asker = Asker(access.service, status.task)
        self._token = token
        self._parked: list[RequestContext] = []
        self._ctx: RequestContext | None = None
        self._outbox: Outbox | None = None
        self._ask_timer: asyncio.TimerHandle | None = None
        self.done = asyncio.ensure_future(self._attend())

    def meet(self, ctx: RequestContext) -> None:
        """The session that last asked about the task is the one that hears of it."""
        self._ctx, self._outbox = ctx, outbox_of(ctx)

    def polled(self) -> None:
        """The client saw that the task waits for an answer."""
        self._ask_later(_PARKING_S)

    async def park(self, ctx: RequestContext) -> TaskStatus:
        """Wait for the end of the task, as a `tasks/result` does; questions go out on its stream."""
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
        async for status in follow(self._access.service, task.task_id, task.owner):
            self._last = status
            shown = task_shown(status)
            if self._outbox is not None and shown["status"] != before:
                self._outbox.put(f"status {task.task_id}", NEWS, shown)
            before = shown["status"]
            self._push_progress(status)
            if status.questions:
                self._ask_parked()
                self._ask_later(_POLLING_S)
        self._asker.leave(request=False)
        return self._last

    def _push_progress(self, status: TaskStatus) -> None:
        token, progress = self._token, status.task.progress
        if token is None or token.given is None or self._outbox is None or progress is None:
            return
        params = token.scale.params(token.given, ProgressUpdate.of(progress))
        if params is not None:
            about = {**params["_meta"], **related(status.task_id)}
            subject = f"progress {status.task_id}"
            self._outbox.put(subject, "notifications/progress", {**params, "_meta": about})

    def _ask_parked(self) -> None:
        if self._parked and self._last.questions:
            ctx = self._parked[-1]
            self._asker.ask(list(self._last.questions), ctx.session, ctx.request_id)

    def _ask_later(self, delay_s: float) -> None:
        """Ask outside any request, unless a `tasks/result` comes before that."""
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


class Asker:
    """Puts the open questions of one task to clients; each question is out at one place at a time.

    A question that was sent outside any request may never have arrived, since nobody may listen
    there: so a request that can carry it takes it over, and the first answer counts.
    """

    def __init__(self, service: TaskService, task: Task) -> None:
        self._service, self._task_id, self._owner = service, task.task_id, task.owner
        self._asks = service.tools.asks(task.tool_name)
        self._out: dict[str, tuple[asyncio.Task[None], bool]] = {}
        self._answered: set[str] = set()

    def ask(
        self, questions: list[InputRequest], session: ServerSession, request_id: types.RequestId | None
    ) -> None:
        """Send those questions that are not out yet: on the stream of that request, or outside any."""
        for question in questions:
            if question.key in self._answered:
                continue  # this status was read before the answer was written
            asking, on_request = self._out.get(question.key, (None, False))
            if asking is not None and (on_request or request_id is None):
                continue
            if asking is not None:
                asking.cancel()
            task = asyncio.ensure_future(self._ask(question, session, request_id))
            self._out[question.key] = (task, request_id is not None)

    def leave(self, *, request: bool) -> None:
        """Stop waiting for answers, on requests' streams or outside them; another may ask again."""
        for key, (asking, on_request) in list(self._out.items()):
            if on_request == request:
                asking.cancel()
                self._out.pop(key, None)

    async def _ask(
        self, question: InputRequest, session: ServerSession, request_id: types.RequestId | None
    ) -> None:
        """Send one question and keep its answer. Where it cannot be sent, it stays open for others."""
        try:
            answer = await put(question, session, request_id, related(self._task_id), asks=self._asks)
            await self._service.aio.answer_input(self._task_id, {question.key: answer}, owner=self._owner)
            self._answered.add(question.key)
        except InvalidAnswer:
            refused = declined(question.method, "the client's answer does not fit the question")
            await self._service.aio.answer_input(self._task_id, {question.key: refused}, owner=self._owner)
        except (NoBackChannelError, BackburnerError) as error:
            words = "Question %s of task %s is not answered: %s"
            logger.info(words, question.key, self._task_id, error, extra=about(self._task_id))
        except Exception:
            words = "The client of task %s went while it was asked"
            logger.info(words, self._task_id, exc_info=True, extra=about(self._task_id))
        finally:
            if self._out.get(question.key, (None,))[0] is asyncio.current_task():
                del self._out[question.key]
