"""The ways in which servers speak about a task that a call became."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar, Protocol

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types.jsonrpc import INTERNAL_ERROR

from ..errors import ConnectionLost, NotOffered, TaskWasCancelled
from .connection import Connection
from .dialects.task_tools.client import TaskTools, progress_of
from .dialects.tasks_2025.questions import Questions
from .dialects.tasks_2026.extension import poll_interval_s
from .updates import Status, Update

_LISTEN_AGAIN_S = 1.0
_listen_ids = itertools.count(1)


class Bell:
    """Rings when there may be news of a task. `trusted` while the server says that it will tell of all."""

    def __init__(self, event: asyncio.Event) -> None:
        self.event = event
        self.trusted = False


class Speech(Protocol):
    """How to ask about a task, and to steer it. Every method raises ConnectionLost and MCPError."""

    name: ClassVar[str]

    async def read(self, task_id: str) -> Update: ...

    async def result(self, task_id: str) -> types.CallToolResult:
        """The result of a finished task. Raises what a call itself would, and TaskWasCancelled."""
        ...

    async def cancel(self, task_id: str) -> None: ...

    async def answer(self, task_id: str, answers: Mapping[str, Any]) -> None: ...

    def listening(self, task_id: str) -> contextlib.AbstractAsyncContextManager[Bell]: ...


class Tasks2026:
    """The tasks extension of 2026-07-28."""

    name: ClassVar[str] = "2026-07-28"

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def _get(self, task_id: str) -> dict[str, Any]:
        return await self._connection.request("tasks/get", {"taskId": task_id})

    async def read(self, task_id: str) -> Update:
        task = await self._get(task_id)
        return _update(task, task.get("inputRequests") or {})

    async def result(self, task_id: str) -> types.CallToolResult:
        task = await self._get(task_id)
        if task["status"] == "failed":
            error = task["error"]
            raise MCPError(error["code"], error["message"], error.get("data"))
        if task["status"] == "cancelled":
            raise TaskWasCancelled(task_id=task_id)
        return call_tool_result(task["result"])

    async def cancel(self, task_id: str) -> None:
        await self._connection.request("tasks/cancel", {"taskId": task_id})

    async def answer(self, task_id: str, answers: Mapping[str, Any]) -> None:
        params = {"taskId": task_id, "inputResponses": dict(answers)}
        await self._connection.request("tasks/update", params)

    @contextlib.asynccontextmanager
    async def listening(self, task_id: str) -> AsyncIterator[Bell]:
        with self._connection.bell(task_id) as event:
            bell = Bell(event)
            listener = asyncio.ensure_future(self._listen(task_id, bell))
            try:
                yield bell
            finally:
                listener.cancel()
                await asyncio.gather(listener, return_exceptions=True)

    async def _listen(self, task_id: str, bell: Bell) -> None:
        """Hold a subscription open. While there is none the bell is not to be trusted."""
        wanted = {"notifications": {"taskIds": [task_id]}}
        while True:
            with contextlib.suppress(ConnectionError, ConnectionLost):
                link = await self._connection.link()
                sent = link.request("subscriptions/listen", wanted, request_id=f"watch-{next(_listen_ids)}")
                ended = asyncio.ensure_future(sent)
                heard = asyncio.ensure_future(bell.event.wait())  # the server begins by telling the state
                try:
                    await asyncio.wait({ended, heard}, return_when=asyncio.FIRST_COMPLETED)
                    bell.trusted = heard.done()
                    await ended
                except MCPError:
                    return  # this server tells nothing by itself: it is polled
                finally:
                    heard.cancel()
                    ended.cancel()
                    bell.trusted = False
                    bell.event.set()
            await asyncio.sleep(_LISTEN_AGAIN_S)


class Tasks2025:
    """The tasks of 2025-11-25. Its server asks questions by requests of its own."""

    name: ClassVar[str] = "2025-11-25"

    def __init__(self, connection: Connection, questions: Questions) -> None:
        self._connection = connection
        self._questions = questions
        self._parked: dict[str, asyncio.Future[None]] = {}

    async def read(self, task_id: str) -> Update:
        task = await self._connection.request("tasks/get", {"taskId": task_id})
        if task["status"] == "input_required" and task_id not in self._parked:
            self._parked[task_id] = asyncio.ensure_future(self._park(task_id))
        return _update(task, self._questions.open(task_id))

    async def _park(self, task_id: str) -> None:
        """Servers of this revision ask their questions while a `tasks/result` waits."""
        with contextlib.suppress(MCPError, ConnectionLost):
            await self._connection.request("tasks/result", {"taskId": task_id})

    async def result(self, task_id: str) -> types.CallToolResult:
        try:
            return call_tool_result(await self._connection.request("tasks/result", {"taskId": task_id}))
        except MCPError as error:
            if (await self.read(task_id)).status == "cancelled":
                raise TaskWasCancelled(task_id=task_id) from error
            raise

    async def cancel(self, task_id: str) -> None:
        try:
            await self._connection.request("tasks/cancel", {"taskId": task_id})
        except MCPError:
            if not (await self.read(task_id)).finished:  # this revision refuses what is over already
                raise

    async def answer(self, task_id: str, answers: Mapping[str, Any]) -> None:
        self._questions.answer(task_id, answers)

    @contextlib.asynccontextmanager
    async def listening(self, task_id: str) -> AsyncIterator[Bell]:
        with self._connection.bell(task_id) as event:
            try:
                yield Bell(event)  # it tells of statuses, not of all progress, so it is polled as well
            finally:
                if (parked := self._parked.pop(task_id, None)) is not None:
                    parked.cancel()


class TwoStage:
    """A `job_id` in place of a result: the task tools where the server has them, else `tools/poll_result`."""

    name: ClassVar[str] = "two-stage"

    def __init__(self, connection: Connection, tools: TaskTools) -> None:
        self._connection = connection
        self._tools = tools

    async def _poll(self, task_id: str) -> dict[str, Any]:
        found = await self._connection.request("tools/poll_result", {"job_id": task_id})
        body: dict[str, Any] = mcp_result_in(found) or {}
        if not body.get("success"):
            raise MCPError(INTERNAL_ERROR, _messages(body) or "Job not found")
        return dict(body["data"])

    async def read(self, task_id: str) -> Update:
        if await self._tools.offered():
            return _update_by_tools(await self._tools.call("get_task_status", task_id))
        job = await self._poll(task_id)
        if job["status"] == "complete":
            return Update(task_id, "completed")
        share = job.get("progress")
        told = None if share is None else progress_of({"progress": {"percent": 100 * share}})
        return Update(task_id, "working", progress=told)

    async def result(self, task_id: str) -> types.CallToolResult:
        if not await self._tools.offered():
            return call_tool_result((await self._poll(task_id))["result"])
        found = await self._tools.call("get_task_result", task_id)
        if found["state"] == "cancelled":
            raise TaskWasCancelled(task_id=task_id)
        if found["error"] is not None:
            message = found["error"]["message"]
            if found["error"]["type"] != "tool_error":
                raise MCPError(INTERNAL_ERROR, message, {"type": found["error"]["type"]})
            return call_tool_result({"content": [{"type": "text", "text": message}], "isError": True})
        return value_result(found["result"])

    async def cancel(self, task_id: str) -> None:
        await self._tools.call("cancel_task", task_id)

    async def answer(self, task_id: str, answers: Mapping[str, Any]) -> None:
        raise NotOffered(what="a way to answer questions", task_id=task_id)

    @contextlib.asynccontextmanager
    async def listening(self, task_id: str) -> AsyncIterator[Bell]:
        with self._connection.bell(task_id) as event:
            yield Bell(event)


class Inline:
    """No task at all: the result was there at once."""

    name: ClassVar[str] = "inline"

    def __init__(self, result: types.CallToolResult) -> None:
        self._result = result

    async def read(self, task_id: str) -> Update:
        return Update(task_id, "completed")

    async def result(self, task_id: str) -> types.CallToolResult:
        return self._result

    async def cancel(self, task_id: str) -> None:
        return

    async def answer(self, task_id: str, answers: Mapping[str, Any]) -> None:
        raise NotOffered(what="questions", task_id=task_id)

    @contextlib.asynccontextmanager
    async def listening(self, task_id: str) -> AsyncIterator[Bell]:
        yield Bell(asyncio.Event())


# -- reading answers -------------------------------------------------------------------------------

_STATUS_OF_STATE: Mapping[str, Status] = {
    "input_required": "input_required",
    "succeeded": "completed",
    "failed": "failed",
    "timed_out": "failed",
    "cancelled": "cancelled",
}


def _update(task: Mapping[str, Any], questions: Mapping[str, Any]) -> Update:
    return Update(
        task["taskId"],
        task["status"],
        message=task.get("statusMessage") or "",
        questions=questions,
        poll_s=poll_interval_s(task),
    )


def _update_by_tools(status: dict[str, Any]) -> Update:
    error, state = status.get("error"), status["state"]
    raised = state == "failed" and error is not None and error["type"] == "tool_error"
    return Update(
        status["task_id"],
        "completed" if raised else _STATUS_OF_STATE.get(state, "working"),
        message=error["message"] if error else "",
        progress=progress_of(status),
        questions={
            question["key"]: {
                "method": "elicitation/create",
                "params": {"message": question["message"], "requestedSchema": question["schema"]},
            }
            for question in status.get("questions") or ()
        },
        poll_s=(status.get("poll_after_ms") or 1000) / 1000,
    )


def mcp_result_in(result: Mapping[str, Any]) -> dict[str, Any] | None:
    """The `{success, data, messages}` of a two-stage server: some send it bare, some in a tool result."""
    for body in (result.get("structuredContent"), result):
        if isinstance(body, Mapping) and isinstance(body.get("success"), bool) and "data" in body:
            return dict(body)
    return None


def job_in(result: Mapping[str, Any]) -> str | None:
    """The `job_id` of a call that goes on in the background."""
    data = (mcp_result_in(result) or {}).get("data")
    if isinstance(data, Mapping) and data.get("status") in ("queued", "running"):
        job_id = data.get("job_id")
        return job_id if isinstance(job_id, str) else None
    return None


def call_tool_result(result: Mapping[str, Any]) -> types.CallToolResult:
    """A result as the SDK has it, also for a bare `{success, data, messages}`."""
    if "content" not in result and (body := mcp_result_in(result)) is not None:
        text = _messages(body) or json.dumps(body["data"], ensure_ascii=False)
        content = [{"type": "text", "text": text}]
        result = {"content": content, "structuredContent": body, "isError": not body["success"]}
    return types.CallToolResult.model_validate(result)


def value_result(value: Any) -> types.CallToolResult:
    """The tool result for a bare value, as a Backburner server makes it."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    structured = value if isinstance(value, dict) else {"result": value}
    return call_tool_result({"content": [{"type": "text", "text": text}], "structuredContent": structured})


def _messages(body: Mapping[str, Any]) -> str:
    return "\n".join(str(message.get("text", "")) for message in body.get("messages") or ())
