"""The task tools, for agents whose client supports no tasks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from ....core.lifecycle import State
from ....core.logs import text_of
from ....core.task import InputRequest, Resources
from ....core.times import from_iso, iso
from ....errors import BackburnerError, InvalidInputs, InvalidRequest, TaskIdRequired
from ....service.tasks import TaskResult, TaskStatus
from ...access import TaskAccess
from ...notifications import requested_webhook
from ...requests import RequestContext, caller_of_request, owner_of_request
from ...results import error_as_result, parse_part, part_of_result, text_block
from ..server import AddedTool, ServerDialect
from . import wire
from .answers import Answer, describe, describe_result
from .schemas import ONE_OF_MANY, SCHEMAS
from .wait import WaitHandler, cursor_after

if TYPE_CHECKING:
    from ....core.schema import SchemaCheck

Handler = Callable[[dict[str, Any]], Awaitable[Answer]]

#: Most log lines and tasks in one answer.
_MOST_LINES, _MOST_LISTED = 5000, 500


class TaskTools(ServerDialect):
    """The task tools of one server."""

    def __init__(self, access: TaskAccess) -> None:
        self._access = access
        self._waiting = WaitHandler(access)
        if access.settings.mcp.task_tools:
            access.read_tool = wire.GET_TASK_RESULT
        self._handlers: Mapping[str, Handler] = {
            wire.SUBMIT_TASK: self.submit_task,
            wire.GET_TASK_STATUS: self.get_task_status,
            wire.GET_TASK_RESULT: self.get_task_result,
            wire.TAIL_TASK_LOGS: self.tail_task_logs,
            wire.LIST_TASK_ARTIFACTS: self.list_task_artifacts,
            wire.LIST_TASKS: self.list_tasks,
            wire.CANCEL_TASK: self.cancel_task,
            wire.ANSWER_TASK: self.answer_task,
        }

    def added_tools(self) -> Mapping[str, AddedTool]:
        wanted = self._access.settings.mcp.task_tools
        names = wire.FEW if wanted == "few" else SCHEMAS if wanted else ()
        return {name: self._own_tool(name) for name in names}

    def _own_tool(self, name: str) -> AddedTool:
        listed = SCHEMAS[name].listed(name)
        answer = partial(self._call, name, listed)
        if name == wire.ANSWER_TASK:
            return AddedTool(name, listed, answer, offered=self._somebody_asks_anyone)
        return AddedTool(name, listed, answer, offered=self._are_needed)

    def _are_needed(self) -> bool:
        """Return False if the host names every task itself, since it then gets the results."""
        tools = self._access.app.tools
        return not (len(tools) and all(spec.requires_task_id for spec in tools))

    def _somebody_asks_anyone(self) -> bool:
        """Return whether a tool accepts answers of models; otherwise only the user may answer."""
        return self._are_needed() and any(spec.asks == "anyone" for spec in self._access.app.tools)

    async def _call(
        self, name: str, listed: dict[str, Any], ctx: RequestContext, arguments: dict[str, Any]
    ) -> dict[str, Any]:
        """Return a `CallToolResult`; errors are in it, for the model to read."""
        try:
            _check(_schema_check(name), listed["name"], arguments)
            await self._access.ready()
            if name == wire.WAIT_FOR_TASK:
                return (await self._waiting.wait(ctx, arguments)).as_result()
            return (await self._handlers[name](arguments)).as_result()
        except BackburnerError as error:
            return error_as_result(error)

    async def on_notification(self, ctx: RequestContext) -> None:
        if ctx.method == "notifications/cancelled":
            await self._waiting.patient.cancelled(ctx)

    # -- the tools

    async def submit_task(self, arguments: dict[str, Any]) -> Answer:
        tasks = arguments.get("tasks")
        if tasks is not None and len(arguments) == 1:
            return await self._submit_many(tasks)
        if tasks is not None or "tool_name" not in arguments:
            raise InvalidRequest(reason="give tool_name and inputs, or else tasks for several, and not both")
        status = await self._submit(arguments)
        task = status.task
        body = {
            "task_id": task.task_id,
            "state": task.state,
            "queue": task.queue,
            "position": status.position,
            "submitted_at": iso(task.submitted_at),
            "poll_after_ms": status.advised_poll_ms,
            **wire.estimated(status.estimate),
        }
        then = f"For its result, call {wire.WAIT_FOR_TASK} with this task_id."
        return Answer(body, [text_block(f"{task.tool_name} is {task.state} as task {task.task_id}. {then}")])

    async def _submit(self, asked: Mapping[str, Any]) -> TaskStatus:
        tools, name = self._access.app.tools, asked["tool_name"]
        if name in tools and tools.get(name).requires_task_id:
            raise TaskIdRequired(tool_name=name)
        resources = dict(asked.get("resources") or {})
        queue = resources.pop("resource_class", None)
        status = await self._access.service.aio.submit(
            name,
            asked.get("inputs") or {},
            owner=owner_of_request(),
            queue=queue,
            priority=asked.get("priority") or 0,
            ttl_s=asked.get("ttl_s"),
            idempotency_key=asked.get("idempotency_key"),
            tags=asked.get("tags") or (),
            resources=Resources(**resources),
            caller=caller_of_request(),
            webhook=requested_webhook(),
        )
        self._access.chat.notify_when_done(status.task)
        return status

    async def _submit_many(self, tasks: list[dict[str, Any]]) -> Answer:
        """Submit each task by itself, so that one error does not affect the others.

        After the first, which opens the store, they are submitted concurrently and share commits.
        """
        first = await self._submit_one_of_many(tasks[0])
        outcomes = [first, *await asyncio.gather(*map(self._submit_one_of_many, tasks[1:]))]
        taken = [one["task_id"] for one in outcomes if "task_id" in one]
        words = [
            f"tasks[{index}] was refused: {one['error']['message']}"
            for index, one in enumerate(outcomes)
            if "error" in one
        ]
        if taken:
            then = f"For their results, call {wire.WAIT_FOR_TASK} with these as task_ids:"
            words.append(f"{len(taken)} tasks were submitted. {then} {json.dumps(taken)}")
        return Answer({"tasks": outcomes}, [text_block("\n".join(words))], is_error=not taken)

    async def _submit_one_of_many(self, asked: dict[str, Any]) -> dict[str, Any]:
        try:
            _check(_schema_check(), wire.SUBMIT_TASK, asked)
            task = (await self._submit(asked)).task
        except BackburnerError as error:
            return {"error": {"code": error.code, "message": str(error)}}
        return {"task_id": task.task_id, "state": task.state}

    async def get_task_status(self, arguments: dict[str, Any]) -> Answer:
        """Return the status, also of an expired task while its record exists."""
        status = await self._access.service.aio.status(arguments["task_id"], owner=owner_of_request())
        if status.task.finished:
            return Answer(describe(status))
        task_id, cursor = f"task_id {status.task_id}", cursor_after(status)
        wait = f"{wire.WAIT_FOR_TASK} with {task_id}"
        look = f"{wire.GET_TASK_STATUS} with {task_id} and cursor {cursor}"
        then = f"To wait for its end, call {wait}. To look again, call {look}"
        return Answer({**describe(status), "cursor": cursor, "next": then})

    async def get_task_result(self, arguments: dict[str, Any]) -> Answer:
        access, presenter = self._access, self._access.presenter
        result = await access.service.aio.result(arguments["task_id"], owner=owner_of_request())
        await access.delivered(result.task)
        if any(arguments.get(name) is not None for name in ("path", "offset", "length")):
            return await access.service.aio.run(self._part, result, arguments)
        answer = await access.service.aio.run(describe_result, result, presenter, access.links)
        if not presenter.shows_all or result.task.state is not State.SUCCEEDED:
            return answer
        return Answer(
            answer.body, extra=answer.extra, meta={wire.RESULT_ITSELF: await access.outcome(result.task)}
        )

    def _part(self, result: TaskResult, arguments: Mapping[str, Any]) -> Answer:
        """Return a part of a result: as JSON if it is whole, or else as text."""
        part = parse_part({**arguments, "path": arguments.get("path") or "$"})
        part = part.at_most(self._access.presenter.text_bytes)
        try:
            piece = part_of_result(result, part, self._access.app.artifacts)
        except OSError:
            raise InvalidRequest(reason="the file of the result no longer exists") from None
        is_value = piece.is_whole and piece.kind == "application/json"
        value = json.loads(piece.data) if is_value else piece.text
        task = result.task
        body: dict[str, Any] = {"task_id": task.task_id, "state": task.state, "result": value}
        body |= {"artifacts": [], "error": None, "completed_at": iso(task.completed_at)}
        if piece.is_whole:
            return Answer(body, [text_block(piece.text)])
        where = f"[{json.dumps(piece.place)} of {piece.shape}]"
        return Answer(
            {**body, "range": piece.place, "shape": piece.shape}, [text_block(piece.text), text_block(where)]
        )

    async def list_task_artifacts(self, arguments: dict[str, Any]) -> Answer:
        access = self._access
        run, owner = access.service.aio.run, owner_of_request()
        return Answer(await run(access.artifacts_of, arguments["task_id"], owner))

    async def tail_task_logs(self, arguments: dict[str, Any]) -> Answer:
        task_id = arguments["task_id"]
        await self._access.head(task_id)
        page = await self._access.service.aio.logs(
            task_id,
            owner=owner_of_request(),
            cursor=arguments.get("cursor"),
            limit=min(arguments.get("limit") or 200, _MOST_LINES),
        )
        lines = [
            {
                "seq": line.seq,
                "ts": iso(line.ts),
                "stream": line.stream,
                "level": line.level,
                "message": text_of(line),
            }
            for line in page.lines
        ]
        return Answer(
            {
                "task_id": task_id,
                "lines": lines,
                "next_cursor": page.next_cursor,
                "truncated": page.truncated,
            }
        )

    async def list_tasks(self, arguments: dict[str, Any]) -> Answer:
        states = arguments.get("states") or [state for state in State if state is not State.EXPIRED]
        service = self._access.service
        page = await service.aio.list(
            owner=owner_of_request(),
            states=states,
            tool_name=arguments.get("tool_name"),
            tags_any=arguments.get("tags_any") or (),
            submitted_after=_moment("submitted_after", arguments.get("submitted_after")),
            limit=min(arguments.get("limit") or 50, _MOST_LISTED),
            cursor=arguments.get("cursor"),
        )
        shown = await service.aio.run(lambda: [describe(service.view(task)) for task in page.tasks])
        return Answer({"tasks": shown, "next_cursor": page.next_cursor})

    async def cancel_task(self, arguments: dict[str, Any]) -> Answer:
        task_id = arguments["task_id"]
        await self._access.head(task_id)
        status = await self._access.service.aio.cancel(
            task_id, owner=owner_of_request(), reason=arguments.get("reason")
        )
        return Answer({"task_id": task_id, "state": status.task.state, "acknowledged": True})

    async def answer_task(self, arguments: dict[str, Any]) -> Answer:
        task_id = arguments["task_id"]
        status = await self._access.status(task_id)
        tool_name = status.task.tool_name
        if self._access.app.tools.asks(tool_name) != "anyone":
            raise InvalidRequest(reason=f"{tool_name} asks its client, and nobody else can answer for that")
        question = _choose(status, arguments.get("question"))
        answer: dict[str, Any] = {
            "action": arguments.get("action") or "accept",
            "content": arguments.get("content") or {},
        }
        given = answer if question.method == "elicitation/create" else answer["content"]
        service = self._access.service
        answered = await service.aio.answer_input(task_id, {question.key: given}, owner=owner_of_request())
        return Answer(describe(answered))


def _choose(status: TaskStatus, key: str | None) -> InputRequest:
    """Return the open question of that key, or the only one. Raises InvalidRequest."""
    asked = {question.key: question for question in status.questions}
    if not asked:
        raise InvalidRequest(reason=f"the task is {status.task.state}, and asks nothing")
    if key is None and len(asked) == 1:
        return next(iter(asked.values()))
    if key not in asked:
        raise InvalidRequest(reason=f"name one of its questions: {', '.join(asked)}")
    return asked[key]


def _check(check: SchemaCheck, name: str, arguments: Mapping[str, Any]) -> None:
    # Stop at the first error: the schemas check a list's size before its items.
    broken = check.complaint(arguments, of_errors=1)
    if broken is not None:
        where = "/".join(map(str, broken.path)) or "the top level"
        # A tool's inputs may be secret.
        reason = f"it breaks the rule {broken.rule!r}" if "inputs" in broken.path else broken.message
        raise InvalidInputs(tool_name=name, field=where, reason=reason)


@cache
def _schema_check(name: str = "") -> SchemaCheck:
    """Return the check of a task tool's inputs; without a name, of one task in a batch."""
    from ....core.schema import SchemaCheck

    return SchemaCheck(SCHEMAS[name].inputs if name else ONE_OF_MANY)


def _moment(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return from_iso(text)
    except ValueError:
        raise InvalidRequest(reason=f"{name} is not an ISO 8601 time: {text[:50]!r}") from None
