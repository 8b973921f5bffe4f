"""The task tools: what an agent whose client knows no tasks works with.

Their texts are written for a model: when to use which, what comes back, what to do next.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from ....errors import BackburnerError, InvalidInputs, InvalidRequest, TaskIdRequired
from ....lifecycle import State
from ....service import TaskResult, TaskStatus
from ....task import InputRequest, Resources, Task
from ....times import from_iso, iso
from ...access import TaskAccess, present
from ...jsonrpc_errors import raised_error
from ...outcomes import error_as_result, own_word, result_meta
from ...owner import caller_of_request, owner_of_request
from ...patience import client_patience_s
from ...request import RequestContext
from ...server_dialect import OwnTool, ServerDialect
from ...showing import Showing, text_block
from .wire import (
    ANSWER_TASK,
    CANCEL_TASK,
    GET_TASK_RESULT,
    GET_TASK_STATUS,
    LIST_TASK_ARTIFACTS,
    LIST_TASKS,
    RESULT_ITSELF,
    SCHEMAS,
    SUBMIT_TASK,
    TAIL_TASK_LOGS,
    WAIT_FOR_TASK,
    estimated,
)

if TYPE_CHECKING:
    from ....schema_check import SchemaCheck

_LONGEST_WAIT_S = 300.0
_WAIT_S = 45.0
#: Of what a handler gives: the blocks that stand beside the text.
_BLOCKS = "blocks"

Handler = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class TaskTools(ServerDialect):
    """The task tools of one server, under the names by which it lists them."""

    def __init__(self, access: TaskAccess) -> None:
        self._access = access
        self._handlers: Mapping[str, Handler] = {
            SUBMIT_TASK: self.submit_task,
            GET_TASK_STATUS: self.get_task_status,
            WAIT_FOR_TASK: self.wait_for_task,
            GET_TASK_RESULT: self.get_task_result,
            TAIL_TASK_LOGS: self.tail_task_logs,
            LIST_TASK_ARTIFACTS: self.list_task_artifacts,
            LIST_TASKS: self.list_tasks,
            CANCEL_TASK: self.cancel_task,
            ANSWER_TASK: self.answer_task,
        }

    def own_tools(self) -> Mapping[str, OwnTool]:
        if not self._access.settings.mcp.task_tools:
            return {}
        prefix = self._access.settings.mcp.task_tools_prefix
        return {prefix + name: self._own_tool(name, prefix) for name in self._handlers}

    def _own_tool(self, name: str, prefix: str) -> OwnTool:
        listed = SCHEMAS[name].listed(name, prefix)
        answer = partial(self._call, name, listed)
        if name == ANSWER_TASK:
            return OwnTool(prefix + name, listed, answer, offered=self._somebody_asks_anyone)
        return OwnTool(prefix + name, listed, answer)

    def _somebody_asks_anyone(self) -> bool:
        """Else it is not offered: a model must not answer what its user is asked."""
        return any(spec.asks == "anyone" for spec in self._access.app.tools)

    async def _call(
        self, name: str, listed: dict[str, Any], ctx: RequestContext, arguments: dict[str, Any]
    ) -> dict[str, Any]:
        """A `CallToolResult`; what goes wrong is told in it, for the model to read.

        It is there within the client's patience.
        """
        try:
            _check(name, listed, arguments)
            await self._access.ready()
            patience_s = client_patience_s(ctx, self._access.settings)
            body = await self._handlers[name](_in_time(listed, arguments, patience_s))
        except BackburnerError as error:
            return error_as_result(error)
        blocks, whole = body.pop(_BLOCKS, []), body.pop(RESULT_ITSELF, None)
        text = json.dumps(body, ensure_ascii=False, indent=2)
        result = {"content": [text_block(text), *blocks], "structuredContent": body, "isError": False}
        meta = {**body.get("_meta", {}), **({} if whole is None else {RESULT_ITSELF: whole})}
        return {**result, "_meta": meta} if meta else result

    # -- the tools

    async def submit_task(self, arguments: dict[str, Any]) -> dict[str, Any]:
        tools, name = self._access.app.tools, arguments["tool_name"]
        if name in tools and tools.get(name).requires_task_id:
            raise TaskIdRequired(tool_name=name)
        resources = dict(arguments.get("resources") or {})
        queue = resources.pop("resource_class", None)
        status = await self._access.service.aio.submit(
            name,
            arguments.get("inputs") or {},
            owner=owner_of_request(),
            queue=queue,
            priority=arguments.get("priority") or 0,
            ttl_s=arguments.get("ttl_s"),
            idempotency_key=arguments.get("idempotency_key"),
            tags=arguments.get("tags") or (),
            resources=Resources(**resources),
            caller=caller_of_request(),
        )
        task = status.task
        return {
            "task_id": task.task_id,
            "state": task.state,
            "queue": task.queue,
            "position": status.position,
            "submitted_at": iso(task.submitted_at),
            "poll_after_ms": status.poll_after_ms,
            **estimated(status.estimate),
        }

    async def get_task_status(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return describe(await self._access.status(arguments["task_id"]))

    async def wait_for_task(self, arguments: dict[str, Any]) -> dict[str, Any]:
        timeout_s = min(float(arguments.get("timeout_s") or _WAIT_S), _LONGEST_WAIT_S)
        await self._access.head(arguments["task_id"])
        status = await self._access.service.aio.wait(
            arguments["task_id"],
            timeout_s,
            owner=owner_of_request(),
            until=lambda task: task.finished or task.state is State.INPUT_REQUIRED,
        )
        waited = {**describe(present(status)), "finished": status.task.finished}
        if not status.task.finished:
            return waited
        return {**waited, **await self.get_task_result(arguments)}

    async def get_task_result(self, arguments: dict[str, Any]) -> dict[str, Any]:
        service, owner = self._access.service, owner_of_request()
        result = await service.aio.result(arguments["task_id"], owner=owner)
        described = await service.aio.run(self._describe_result, result, self._access.showing)
        if self._access.showing.most_bytes is None and result.task.state is State.SUCCEEDED:
            described[RESULT_ITSELF] = await self._access.outcome(result.task)
        return described

    def _describe_result(self, result: TaskResult, showing: Showing) -> dict[str, Any]:
        task = result.task
        succeeded = task.state is State.SUCCEEDED
        value, blocks = showing.value(result) if succeeded else (own_word(task), [])
        return {
            _BLOCKS: blocks,
            "task_id": task.task_id,
            "state": task.state,
            "result": value,
            "artifacts": self._access.links.shown(task, result.artifacts)["artifacts"],
            "error": _shown_error(task),
            "completed_at": iso(task.completed_at),
            "_meta": result_meta(task),
        }

    async def list_task_artifacts(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return await self._access.artifacts(arguments["task_id"])

    async def tail_task_logs(self, arguments: dict[str, Any]) -> dict[str, Any]:
        task_id = arguments["task_id"]
        await self._access.head(task_id)
        page = await self._access.service.aio.logs(
            task_id,
            owner=owner_of_request(),
            cursor=arguments.get("cursor"),
            limit=arguments.get("limit") or 200,
        )
        lines = [
            {
                "seq": line.seq,
                "ts": iso(line.ts),
                "stream": line.stream,
                "level": line.level,
                "message": line.message,
            }
            for line in page.lines
        ]
        return {
            "task_id": task_id,
            "lines": lines,
            "next_cursor": page.next_cursor,
            "truncated": page.truncated,
        }

    async def list_tasks(self, arguments: dict[str, Any]) -> dict[str, Any]:
        states = arguments.get("states") or [state for state in State if state is not State.EXPIRED]
        service = self._access.service
        page = await service.aio.list(
            owner=owner_of_request(),
            states=states,
            tool_name=arguments.get("tool_name"),
            tags_any=arguments.get("tags_any") or (),
            submitted_after=_moment("submitted_after", arguments.get("submitted_after")),
            limit=arguments.get("limit") or 50,
            cursor=arguments.get("cursor"),
        )
        shown = await service.aio.run(lambda: [describe(service.view(task)) for task in page.tasks])
        return {"tasks": shown, "next_cursor": page.next_cursor}

    async def cancel_task(self, arguments: dict[str, Any]) -> dict[str, Any]:
        task_id = arguments["task_id"]
        await self._access.head(task_id)
        status = await self._access.service.aio.cancel(
            task_id, owner=owner_of_request(), reason=arguments.get("reason")
        )
        return {"task_id": task_id, "state": status.task.state, "acknowledged": True}

    async def answer_task(self, arguments: dict[str, Any]) -> dict[str, Any]:
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
        return describe(
            await service.aio.answer_input(task_id, {question.key: given}, owner=owner_of_request())
        )


def _choose(status: TaskStatus, key: str | None) -> InputRequest:
    """The open question of that key, or the only one. Raises InvalidRequest."""
    asked = {question.key: question for question in status.questions}
    if not asked:
        raise InvalidRequest(reason=f"the task is {status.task.state}, and asks nothing")
    if key is None and len(asked) == 1:
        return next(iter(asked.values()))
    if key not in asked:
        raise InvalidRequest(reason=f"name one of its questions: {', '.join(asked)}")
    return asked[key]


def describe(status: TaskStatus) -> dict[str, Any]:
    """A task's status in the words of the task tools."""
    task, progress = status.task, status.task.progress
    shown: dict[str, Any] = {
        "task_id": task.task_id,
        "state": task.state,
        "tool_name": task.tool_name,
        "attempt": task.attempt,
        "priority": task.priority,
        "queue": task.queue,
        "position": status.position,
        "worker_id": task.worker_id,
        "submitted_at": iso(task.submitted_at),
        "started_at": iso(task.started_at),
        "updated_at": iso(task.updated_at),
        "heartbeat_at": iso(task.heartbeat_at),
        "completed_at": iso(task.completed_at),
        **estimated(status.estimate),
        "progress": None if progress is None else {**progress.to_dict(), "eta_s": status.eta_s},
        "eta_s": status.eta_s,
        "cancel_requested": task.cancel_requested,
        "timeout_at": iso(task.timeout_at),
        "expires_at": iso(task.expires_at),
        "tags": list(task.tags),
        "error": _shown_error(task),
    }
    if status.questions:
        shown["questions"] = [
            {"key": q.key, "message": q.params.get("message"), "schema": q.params.get("requestedSchema")}
            for q in status.questions
        ]
    if not task.finished:
        shown["poll_after_ms"] = status.poll_after_ms
    return shown


def _shown_error(task: Task) -> dict[str, Any] | None:
    """Without the traceback, which is for the logs and the operator; whole if it is an error of JSON-RPC."""
    error, raised = task.error, raised_error(task)
    if error is None:
        return None
    shown = {"type": error.type, "message": error.message, "exception": error.exception}
    return shown if raised is None else {**shown, "jsonrpc": raised}


def _in_time(
    listed: Mapping[str, Any], arguments: Mapping[str, Any], patience_s: float | None
) -> dict[str, Any]:
    """The arguments, with no longer a wait in them than the client has patience for."""
    if patience_s is None or "timeout_s" not in listed["inputSchema"]["properties"]:
        return dict(arguments)
    asked = float(arguments.get("timeout_s") or _WAIT_S)
    return {**arguments, "timeout_s": min(asked, patience_s)}


def _check(name: str, listed: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    # By the first error: the schemas name the size of a list before its parts, which may be a great many.
    broken = _schema_check(name).complaint(arguments, of_errors=1)
    if broken is not None:
        where = "/".join(map(str, broken.path)) or "the top level"
        # What stands for a tool's inputs may be a secret, as far as anybody knows here.
        reason = f"it breaks the rule {broken.rule!r}" if "inputs" in broken.path else broken.message
        raise InvalidInputs(tool_name=listed["name"], field=where, reason=reason)


@cache
def _schema_check(name: str) -> SchemaCheck:
    from ....schema_check import SchemaCheck

    return SchemaCheck(SCHEMAS[name].inputs)


def _moment(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return from_iso(text)
    except ValueError:
        raise InvalidRequest(reason=f"{name} is not an ISO 8601 time: {text[:50]!r}") from None
