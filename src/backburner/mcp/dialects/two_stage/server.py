"""Server side of the two-stage return: calls are held, or answered with a handle.

Handles are followed by notifications; `tools/poll_result` is for clients that poll.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from mcp.shared.exceptions import MCPError, NoBackChannelError

from ....core.lifecycle import State
from ....core.task import Task
from ....core.times import span
from ....errors import BackburnerError, NoClient, ProgressTimeout, TaskNotFound, TokenNotFound
from ....observability.counters import COUNTERS
from ....service.tasks import TaskStatus
from ....settings import Settings
from ....tools.results import MCPResult
from ....tools.spec import AsksMode, ToolSpec
from ...access import TaskAccess, unexpired
from ...client_timeouts import (
    LATE_S,
    identifies_program,
    may_be_retry,
    may_be_timeout,
    requesting_client,
)
from ...errors import raised_error, task_failure
from ...notifications import (
    LogMessages,
    Outbox,
    ProgressReporter,
    cancel_on_disconnect,
    connection_state,
    outbox_of,
)
from ...open_calls import joined_notice, mark_joined
from ...progress import CallToken, ProgressTokens, ProgressUpdate, Token
from ...questions import (
    InputRounds,
    QuestionForwarder,
    ask_client,
    declined,
    store_answers,
    supports_input_rounds,
)
from ...requests import (
    RESULT_ON_CARD,
    TASK_OF_CARD,
    RequestContext,
    arguments_of,
    has_left,
    is_followup_round,
    is_modern,
    request_meta,
    uses_card,
)
from ...results import Client, error_for_clients, error_result, reported_result, result_meta, tool_raised
from ...sdk import stream_of
from ...updates import follow, progress_message
from ..server import Method, ServerDialect, SlowCall
from ..task_tools.wire import ANSWER_TASK, WAIT_FOR_TASK, estimated
from . import wire


class TwoStage(ServerDialect):
    """Takes every call that no other dialect takes, and answers by the tool's `answer` mode."""

    def __init__(self, access: TaskAccess, rounds: InputRounds, tokens: ProgressTokens) -> None:
        self._access = access
        self._rounds = rounds
        self._held = HeldCalls(access, rounds, tokens)
        self._announcements = JobNotifications(access, tokens)

    @property
    def holder(self) -> HeldCalls:
        """The calls that are held; this dialect hears of it when clients cancel them."""
        return self._held

    def methods(self) -> Mapping[str, Method]:
        return {wire.POLL: Method(wire.PollParams, self.poll)}

    def describe(self, ctx: RequestContext, spec: ToolSpec, tool: dict[str, Any]) -> dict[str, Any]:
        if always_held(spec, self._access.settings):
            return tool
        return wire.described(tool)

    def takes(self, ctx: RequestContext, spec: ToolSpec) -> bool:
        return True

    async def answer(self, call: SlowCall) -> dict[str, Any]:
        if is_followup_round(call.ctx):
            status = await self._rounds.resume(call.ctx, call.spec)
        else:
            status = await self._access.submit(call.ctx, call.spec, answers=call.answers)
        typed = call.spec.output_schema is not None
        await self._access.patience.refresh()
        if status.joined:
            self._access.patience.confirm_timeout(call.ctx, status.task_id)
        patience_s = await self._patience_s(call, status)
        if patience_s != 0 or status.task.finished:
            result = await self._held.hold(call, status, patience_s)
            if result is not None:
                return mark_joined(self._shown(call, result, status.task_id), status, typed=typed)
            now = await self._access.service.aio.status(status.task_id, owner=status.task.owner)
            status = replace(now, joined=status.joined)
            if status.task.finished:  # it ended just now
                self._access.open_calls.close(status.task_id)
                result = self._shown(call, await self._held.result(status), status.task_id)
                return mark_joined(result, status, typed=typed)
        if not asks_for_handle(call.ctx):  # a client that asks for handles tracks its job
            self._access.open_calls.give_up(status.task_id, "handle")
        return mark_joined(self._hand_out(call, status), status, typed=True)

    async def _patience_s(self, call: SlowCall, status: TaskStatus) -> float | None:
        """Return how long to hold the call; None for until its end. The tool's `answer` mode comes first."""
        settings, service = self._access.settings, self._access.service
        if always_held(call.spec, settings):
            return None
        gives_up = self._access.patience.gives_up(call.ctx, status.task_id)
        if not (self._takes_handle(call) or gives_up):
            return None
        if call.spec.answer_in(settings) == "handle" or asks_for_handle(call.ctx):
            return 0
        if not gives_up and settings.mcp.patience_s is None:
            return None  # a program gets its result
        patience_s = self._access.patience.hold_s(call.ctx)
        if patience_s is None:
            return None
        left_s = await service.aio.look(service.known_left_s, status, arguments_of(call.ctx))
        too_long = left_s is not None and left_s > patience_s
        # The client's timeout began with its call.
        return 0 if too_long else max(0, patience_s - call.waited_s)

    def _takes_handle(self, call: SlowCall) -> bool:
        """Return whether the client accepts a handle in place of the result (docs/decisions/0020).

        Most clients validate results of tools with an output schema.
        """
        return _is_handle_a_result(call.spec) or takes_handle(call.ctx) or self._on_a_card(call)

    def _on_a_card(self, call: SlowCall) -> bool:
        return uses_card(call.ctx, call.spec, self._access.settings)

    def _shown(self, call: SlowCall, result: dict[str, Any], task_id: str) -> dict[str, Any]:
        """Return a result with the task that its card shows."""
        if result.get("resultType") == "input_required" or not self._on_a_card(call):
            return result
        return {**result, "_meta": {**(result.get("_meta") or {}), RESULT_ON_CARD: task_id}}

    def _hand_out(self, call: SlowCall, status: TaskStatus) -> dict[str, Any]:
        """Return the handle: task id, expected run time, and what to do next."""
        self._announcements.announce(call, status)
        task, uses_card = status.task, self._on_a_card(call)
        text = self._words(call, status)
        how = {**estimated(status.estimate), "poll_endpoint": wire.POLL}
        words = wire.queued_words(wire.STATUS[task.state], status.estimate.seconds)
        typed = not _is_handle_a_result(call.spec) and not uses_card  # a card's tool lists no schema
        handed_out = wire.handle(task.task_id, wire.STATUS[task.state], words, text, typed=typed, **how)
        if not self._takes_handle(call):
            handed_out = wire.too_early(handed_out)
        meta = {"progressToken": call.token.shown_for(task)}
        if uses_card:
            meta[TASK_OF_CARD] = task.task_id
        return {**handed_out, "_meta": {**handed_out.get("_meta", {}), **meta}}

    def _words(self, call: SlowCall, status: TaskStatus) -> str:
        """Return the text of a handle for the model."""
        mcp, task = self._access.settings.mcp, status.task
        left = "" if status.eta_s is None else f", with about {span(status.eta_s)} left"
        text = f"{task.tool_name} goes on in the background as task {task.task_id}{left}."
        if status.joined:
            text += f" {joined_notice(task.task_id)}"
        wait = f"{WAIT_FOR_TASK} with this task_id"
        if self._on_a_card(call):
            text += " Its user sees it on a card here, and can answer its questions and cancel it there."
        elif call.spec.asks == "anyone" and status.questions:
            asked = "; ".join(str(one.params.get("message") or one.method) for one in status.questions)
            text += f" It waits for an answer to: {asked}"
            if mcp.task_tools:
                text += f" Call {ANSWER_TASK} to give it."
        return f"{text} For its result, call {wait}." if mcp.task_tools else text

    def on_list(self, ctx: RequestContext) -> None:
        self._held.went_on(ctx)

    async def on_notification(self, ctx: RequestContext) -> None:
        if ctx.method == "notifications/cancelled":
            await self._held.cancelled(ctx)

    async def poll(self, ctx: RequestContext, params: wire.PollParams) -> dict[str, Any]:
        """Answer `tools/poll_result`: status of a job, and its result when finished. Can be repeated."""
        learn_two_stage(ctx)
        self._access.open_calls.touch(params.job_id)
        try:
            await self._access.ready()
            status = await self._access.status(params.job_id)
        except TaskNotFound:
            return MCPResult.error_result(f"Job not found: {params.job_id[:100]}").to_dict()
        except BackburnerError as error:
            return MCPResult.error_result(str(error)).to_dict()
        data: dict[str, Any] = {**wire.named(status.task_id), "status": wire.STATUS[status.task.state]}
        if status.task.finished:
            data["result"] = (await self._announcements.result(status)).to_dict()
            return {**MCPResult(data=data).to_dict(), "_meta": result_meta(status.task)}
        update = progress_update(status)
        data |= {"progress": update.part or 0.0, "message": update.message, **estimated(status.estimate)}
        return MCPResult(data=data).to_dict()


def _is_handle_a_result(spec: ToolSpec) -> bool:
    """Return whether a handle matches the tool's output schema, if it has one."""
    return spec.output_schema is None or (spec.answer == "handle" and spec.allows_handle)


_KNOWS_TWO_STAGE = "backburner.two-stage"


class JobNotifications:
    """Notifies clients that hold a job's handle of its progress, questions and result."""

    def __init__(self, access: TaskAccess, tokens: ProgressTokens) -> None:
        self._access = access
        self._tokens = tokens
        self._followers: set[asyncio.Task[None]] = set()

    def announce(self, call: SlowCall, status: TaskStatus) -> None:
        """Start to notify the client of the job; returns at once.

        Clients get jobs of tools in `handle` mode, and others if they support it. Notifications go through
        the connection's outbox, so nothing blocks.
        """
        self._access.chat.notify_when_done(status.task)
        ctx = call.ctx
        if call.spec.answer_in(self._access.settings) != "handle" and not takes_results(ctx):
            return
        if is_modern(ctx) and ctx.request is not None:
            return  # HTTP without sessions has no stream for it
        # It starts when this request next waits, so after the answer was sent.
        follower = asyncio.create_task(self._tell(ctx, status, call.token))
        self._followers.add(follower)
        follower.add_done_callback(self._followers.discard)
        cancel_on_disconnect(ctx, follower)

    async def _tell(self, ctx: RequestContext, handed_out: TaskStatus, shown: CallToken) -> None:
        outbox = outbox_of(ctx)
        job, token = _Job(handed_out.task_id, outbox, shown), self._tokens.generate_token()
        questions = QuestionForwarder(self._access.service, ctx.session)
        status = handed_out
        try:
            self._say(job, handed_out, token)
            async for status in follow(self._access.service, job.job_id, handed_out.task.owner):
                if outbox.closed:
                    return
                questions.see(status)
                if not status.task.finished:
                    self._say(job, status, token)
            outbox.put(
                f"result:{job.job_id}",
                wire.RESULT_NEWS,
                {
                    **wire.about_job(job.job_id),
                    "result": (await self.result(status)).to_dict(),
                    "_meta": {**wire.about_job(job.job_id), **result_meta(status.task)},
                },
            )
        except TaskNotFound:
            return  # it expired or was deleted
        finally:
            questions.take_back()
            self._tokens.cleanup_completed(token)

    def _say(self, job: _Job, status: TaskStatus, token: Token) -> None:
        update = progress_update(status)
        try:
            self._tokens.send_progress(token, update)
        except (TokenNotFound, ProgressTimeout, NoClient):
            shown, scale = job.token.shown_for(status.task), job.token.scale
            self._tokens.track_tool_call(token, status.task.tool_name, job, shown=shown, scale=scale)
            self._tokens.send_progress(token, update)

    async def result(self, status: TaskStatus) -> MCPResult:
        """Return the result of a finished job. Raises TaskNotFound once it has expired."""
        task = unexpired(status).task
        self._access.open_calls.close(task.task_id)
        if task.state is not State.SUCCEEDED:
            return failure(task)
        outcome = await self._access.outcome(task)
        tools, name = self._access.app.tools, task.tool_name
        title = (tools.get(name).title if name in tools else "") or name
        return success(title, outcome, is_value=task.result_kind == "value")


def success(title: str, outcome: Mapping[str, Any], *, is_value: bool) -> MCPResult:
    """Return a tool's result as an MCPResult; one that it returned itself is used as it is.

    A plain value without structured content is text.
    """
    data = outcome.get("structuredContent")
    if not isinstance(data, dict):
        content = outcome.get("content", [])
        data = {"result": content[0]["text"]} if is_value else {"content": content}
    said = MCPResult.in_tool_result(outcome)
    return said or MCPResult(data=data).add_success(f"{title} completed successfully")


def failure(task: Task) -> MCPResult:
    error, said = error_for_clients(task, task.error), MCPResult.of(reported_result(task))
    if said is not None:
        return said
    if error is None:
        return MCPResult.error_result(f"The task is {task.state}")
    raised_here = tool_raised(task) and error.exception
    details = error.details or (f"{error.exception}: {error.message}" if raised_here else error.type)
    raised = raised_error(task)
    return MCPResult.error_result(error.message, details, None if raised is None else {"error": raised})


def progress_update(status: TaskStatus) -> ProgressUpdate:
    """Return a task's progress with a message."""
    progress = status.task.progress
    message = (progress.message if progress else None) or progress_message(status)
    return ProgressUpdate.of(progress, message or wire.STARTING)


class _Job:
    """One job as a receiver of progress."""

    def __init__(self, job_id: str, outbox: Outbox, token: CallToken) -> None:
        self.job_id = job_id
        self.token = token
        self._outbox = outbox
        self._subject = f"start:{job_id}"

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Queue the notification; the first one is never replaced by a later one."""
        named = wire.about_job(self.job_id)
        self._outbox.put(self._subject, method, {**params, **named, "_meta": {**params["_meta"], **named}})
        self._subject = self.job_id


# -- client support --------------------------------------------------------------------------------


def asks_for_handle(ctx: RequestContext) -> bool:
    """Return whether the call, or else its client, asks for a handle at once."""
    asked = request_meta(ctx).get(wire.ASYNC)
    return _declared(ctx) if asked is None else asked is True


def takes_handle(ctx: RequestContext) -> bool:
    """Return whether the call or its client accepts a handle for any tool."""
    return request_meta(ctx).get(wire.ASYNC) is True or _declared(ctx)


def _declared(ctx: RequestContext) -> bool:
    capabilities = ctx.session.client_capabilities
    return capabilities is not None and wire.CAPABILITY in (capabilities.experimental or {})


def takes_results(ctx: RequestContext) -> bool:
    """Return whether the client supports notifications of its jobs.

    It declared `experimental.tool_result`, set `_meta.async` on a call, or has polled for a job. Other
    clients may fail on unknown methods.
    """
    if _declared(ctx):
        return True
    if request_meta(ctx).get(wire.ASYNC) is True:
        learn_two_stage(ctx)
        return True
    return bool(connection_state(ctx).get(_KNOWS_TWO_STAGE))


def learn_two_stage(ctx: RequestContext) -> None:
    """Note that this client supports two-stage calls."""
    connection_state(ctx)[_KNOWS_TWO_STAGE] = True


#: Time for a `notifications/cancelled` after an aborted call, before the client counts as gone.
_SETTLE_S = 0.1
#: Time in which a client that may not have heard an answer repeats its call.
_DEAF_S = 60.0
_MOST_CHARS = 200


@dataclass(eq=False)
class _Held:
    """A held call, also for a moment after its end."""

    ctx: RequestContext
    status: TaskStatus
    spec: ToolSpec
    progress: ProgressReporter
    #: The client went on meanwhile, as after a timeout: it may not hear the answer.
    may_be_deaf: bool = False

    @property
    def client(self) -> Client:
        return requesting_client(self.ctx)

    @property
    def task_id(self) -> str:
        return self.status.task_id


class HeldCalls:
    """Held calls by connection and request."""

    def __init__(self, access: TaskAccess, rounds: InputRounds, tokens: ProgressTokens) -> None:
        self._access = access
        self._rounds = rounds
        self._tokens = tokens
        self._held: dict[tuple[int, Any], _Held] = {}

    async def hold(
        self, call: SlowCall, status: TaskStatus, patience_s: float | None, *, quiet: bool = False
    ) -> dict[str, Any] | None:
        """Return the result of the call, or its questions; None when the time is over.

        Also None when the tool asks anyone and its client cannot be asked: the client then gets a handle.
        A `quiet` call gets no notifications, and None as soon as its task asks a question.
        """
        ctx, calls, task_id = call.ctx, self._access.open_calls, status.task_id
        key = (stream_of(ctx.session), ctx.request_id)
        token, working = call.token, ProgressUpdate.of(None, "Working")
        given = None if quiet else token.given
        progress = ProgressReporter(ctx, given, token.scale, working, call.came_at)
        held = self._held[key] = _Held(ctx, status, call.spec, progress)
        heartbeat_s = self._access.patience.limits_of(ctx).heartbeat_s
        keep_s = 0.0
        try:
            with calls.held(task_id, ctx), COUNTERS.holding():
                async with (
                    progress.repeating(heartbeat_s),
                    asyncio.timeout(None if status.task.finished else patience_s),
                ):
                    result = await self._follow(call, status, progress, quiet=quiet)
            if result is not None and result.get("resultType") != "input_required":
                await self._delivered(ctx, held)
            return result
        except TimeoutError:
            return None
        except MCPError:
            await self._delivered(ctx, held)
            raise
        except asyncio.CancelledError:
            keep_s = LATE_S  # `cancelled` may follow with the reason
            calls.left(task_id)
            if not identifies_program(held.client):  # it may repeat the call at once
                self._note_closed_stream(held, held.progress.waited_s)
            asyncio.get_running_loop().call_later(_SETTLE_S, self._settle, key, held.progress.waited_s)
            raise
        finally:
            asyncio.get_running_loop().call_later(keep_s, self._held.pop, key, None)

    def went_on(self, ctx: RequestContext) -> None:
        """Note that the client of held calls lists tools, as an agent does when its next turn begins.

        If it times out silently, this is the first sign of it. A repeated call then joins, even if the task
        has ended by then, and confirms the timeout.
        """
        for (stream, _), held in self._held.items():
            waited_s = held.progress.waited_s
            same_client = stream == stream_of(ctx.session) and not held.may_be_deaf
            if same_client and may_be_retry(ctx, waited_s) and not identifies_program(held.client):
                held.may_be_deaf = True
                self._access.open_calls.left(held.task_id)
                self._access.patience.suspect_timeout(ctx, held.task_id, waited_s)

    async def cancelled(self, ctx: RequestContext) -> None:
        """Cancel the task of a held call that the client cancelled.

        Not after a client timeout, with `on_cancel="detach"`, or while others wait for the task.
        """
        request_id = (ctx.params or {}).get("requestId")
        if not isinstance(request_id, str | int):
            return
        held = self._held.pop((stream_of(ctx.session), request_id), None)
        if held is None:
            return
        calls, task_id, said = self._access.open_calls, held.task_id, (ctx.params or {}).get("reason")
        told: dict[str, Any] = {"reason": said[:_MOST_CHARS]} if isinstance(said, str) else {}
        waited_s = held.progress.waited_s
        told |= {"client": held.client.name, "waited_s": round(waited_s, 3)}
        if self._access.patience.is_timeout(held.client, said, waited_s):
            calls.give_up(task_id, "timed_out", **told)
            await self._timed_out(held)
        elif (held.spec.on_cancel or self._access.settings.mcp.on_cancel) == "detach" or calls.is_held(
            task_id
        ):
            calls.give_up(task_id, "stopped", **told)
        else:
            reason, owner = "The client cancelled the call", held.status.task.owner
            await self._access.service.aio.cancel(task_id, owner=owner, reason=reason)
            calls.close(task_id)

    def _settle(self, key: tuple[int, Any], waited_s: float) -> None:
        """Give up a call that was aborted without a notification: its client or connection is gone."""
        held = self._held.get(key)
        if held is None:
            return
        client, calls = held.client, self._access.open_calls
        calls.give_up(held.task_id, "gone", client=client.name, waited_s=round(waited_s, 3))
        self._note_closed_stream(held, waited_s)

    def _note_closed_stream(self, held: _Held, waited_s: float) -> None:
        if may_be_timeout(held.ctx, waited_s):
            silent_s = held.progress.silent_s
            self._access.patience.note_timeout_soon(held.ctx, waited_s, silent_s, held.task_id)

    async def _delivered(self, ctx: RequestContext, held: _Held) -> None:
        """Record that the answer was sent, or that the connection is closed."""
        if not await has_left(ctx):
            if held.may_be_deaf:
                asyncio.get_running_loop().call_later(_DEAF_S, self._access.open_calls.close, held.task_id)
                return
            self._access.open_calls.close(held.task_id)
            await self._access.patience.note_delivered(ctx, held.progress.waited_s)
            return
        told = {"client": held.client.name, "waited_s": round(held.progress.waited_s, 3)}
        self._access.open_calls.give_up(held.task_id, "gone", **told)
        await self._timed_out(held)

    async def _timed_out(self, held: _Held) -> None:
        progress = held.progress
        await self._access.patience.note_timeout(held.ctx, progress.waited_s, progress.silent_s, held.task_id)

    async def _follow(
        self, call: SlowCall, held: TaskStatus, progress: ProgressReporter, *, quiet: bool
    ) -> dict[str, Any] | None:
        status, ctx, spec = held, call.ctx, call.spec
        messages = LogMessages(ctx, self._access.service, held.task)
        with_logs = messages.wanted and not quiet
        async for status in follow(self._access.service, held.task_id, held.task.owner, with_logs=with_logs):
            if with_logs:
                await messages.say()
            if (task := status.task).progress is not None:
                # For an attached tool only its own message, as without tasks.
                attached = task.result_kind == "call_tool_result"
                update = ProgressUpdate.of(task.progress) if attached else progress_update(status)
                self._tokens.touch(call.token.key, update)
                await progress.send(update)
            if status.task.state is State.INPUT_REQUIRED and status.questions:
                if quiet:
                    return None
                if supports_input_rounds(ctx):
                    return self._rounds.ask(status)
                answered = await self._ask_unless_answered(ctx, status, spec)
                if not (answered or always_held(spec, self._access.settings)):
                    return None
        return await self.result(unexpired(status))

    async def result(self, status: TaskStatus) -> dict[str, Any]:
        """Return the answer to a call whose task is finished. Raises MCPError if its tool did."""
        task = status.task
        if task.state is State.SUCCEEDED or tool_raised(task):
            return await self._access.outcome(task)
        if task.error is not None and task.error.type == "protocol_error":
            raise task_failure(task)
        failed = error_result(task.error.message if task.error else f"The task is {task.state}.")
        return {**failed, "_meta": result_meta(task)}

    async def _ask_unless_answered(self, ctx: RequestContext, status: TaskStatus, spec: ToolSpec) -> bool:
        """Ask as `_ask` does, until the questions are answered elsewhere, as on a card, or the task ends."""
        asking = asyncio.ensure_future(self._ask(ctx, status, spec))
        elsewhere = asyncio.ensure_future(self._answered_elsewhere(status))
        try:
            await asyncio.wait((asking, elsewhere), return_when=asyncio.FIRST_COMPLETED)
            return not asking.done() or asking.result()
        finally:
            asking.cancel()
            elsewhere.cancel()

    async def _answered_elsewhere(self, asked: TaskStatus) -> None:
        with suppress(TaskNotFound):
            async for status in follow(self._access.service, asked.task_id, asked.task.owner):
                if status.questions != asked.questions:
                    return

    async def _ask(self, ctx: RequestContext, status: TaskStatus, spec: ToolSpec) -> bool:
        """Ask on the call's own stream; a client that cannot be asked declines, or leaves it to its card.

        Returns False, without an answer, if the tool asks anyone instead.
        """
        answers: dict[str, Any] = {}
        has_card = uses_card(ctx, spec, self._access.settings)
        for question in status.questions:
            on_card = has_card and question.method == "elicitation/create"
            asks: AsksMode = "anyone" if on_card else spec.asks
            try:
                answers[question.key] = await ask_client(question, ctx.session, ctx.request_id, asks=asks)
            except NoBackChannelError as error:
                if spec.asks == "anyone":
                    return False
                if on_card:
                    continue
                answers[question.key] = declined(question.method, str(error))
        if answers:
            await store_answers(self._access.service, status, answers)
        return True


def always_held(spec: ToolSpec, settings: Settings) -> bool:
    """Return whether calls of the tool never get a handle."""
    return spec.answer_in(settings) == "hold" or spec.task == "never"
