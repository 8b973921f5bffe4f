"""The client of `mcp` 2.x at 2026-07-28, with the tasks extension made of its own extension points.

python python_mcp_2.py http URL
python python_mcp_2.py stdio COMMAND ARGUMENT...
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal

import mcp_types as types
from mcp.client import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.session import ClientRequestContext, ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from pydantic import ConfigDict

from tests.system.interop.clients.programs import report

VERSION = "2026-07-28"


class CreatedTask(types.Result):
    task_id: str
    status: str
    result_type: Literal["task"] = "task"


class DetailedTask(types.Result):
    task_id: str
    status: str
    poll_interval_ms: int | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    input_requests: types.InputRequests | None = None


class TaskParams(types.RequestParams):
    model_config = ConfigDict(extra="allow")
    task_id: str


class TaskRequest(types.Request[TaskParams, str]):
    name_param = "taskId"


class TasksExtension(ClientExtension):
    """Leaves the waiting to the program: what a call gives is the task as it was made."""

    identifier = "io.modelcontextprotocol/tasks"

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=CreatedTask, resolve=self._resolve)]

    async def _resolve(self, created: CreatedTask, context: ClaimContext) -> types.CallToolResult:
        made = created.model_dump(by_alias=True, mode="json")
        return types.CallToolResult(content=[], structured_content=made)


async def get(session: ClientSession, task_id: str) -> DetailedTask:
    request = TaskRequest(method="tasks/get", params=TaskParams(task_id=task_id))
    return await session.send_request(request, DetailedTask)


async def answer_questions(session: ClientSession, task: DetailedTask) -> None:
    answers = {}
    for key, question in (task.input_requests or {}).items():
        context = ClientRequestContext(session=session, request_id=key)
        answer = await session.dispatch_input_request(context, question)
        answers[key] = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
    params = TaskParams.model_validate({"taskId": task.task_id, "inputResponses": answers})
    await session.send_request(TaskRequest(method="tasks/update", params=params), types.EmptyResult)


@contextlib.asynccontextmanager
async def connected(**options: Any) -> AsyncIterator[Client]:
    kind, target, *arguments = sys.argv[1:]
    server: Any = target
    if kind == "stdio":
        server = stdio_client(StdioServerParameters(command=target, args=arguments, env=dict(os.environ)))
    async with Client(server, mode=VERSION, **options) as client:
        yield client


def text_of(result: types.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


async def main() -> None:
    asked: list[str] = []

    async def answer(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    options = {"extensions": [TasksExtension()], "elicitation_callback": answer}
    async with connected(**options) as client, connected() as plain:
        session = client.session

        async def start(tool: str, arguments: dict[str, Any] | None = None) -> str:
            made = (await client.call_tool(tool, arguments or {})).structured_content
            assert made is not None
            task_id: str = made["taskId"]
            return task_id

        async def settled(task_id: str) -> dict[str, Any]:
            seen: list[str] = []
            while True:
                task = await get(session, task_id)
                seen.append(task.status)
                if task.status == "input_required":
                    await answer_questions(session, task)
                elif task.status != "working":
                    break
                await asyncio.sleep((task.poll_interval_ms or 1000) / 1000)
            outcome: dict[str, Any] = {"seen": seen, "status": task.status, **(task.error or {})}
            if task.result is not None:
                result = types.CallToolResult.model_validate(task.result)
                outcome |= {"text": text_of(result), "isError": result.is_error}
            return outcome

        async def working() -> dict[str, Any]:
            return await settled(await start("slow", {"n": 3, "step_s": 0.7}))

        async def input_required() -> dict[str, Any]:
            return {**await settled(await start("ask")), "asked": asked}

        async def cancelled() -> dict[str, Any]:
            task_id = await start("slow", {"n": 10_000})
            request = TaskRequest(method="tasks/cancel", params=TaskParams(task_id=task_id))
            await session.send_request(request, types.EmptyResult)
            return await settled(task_id)

        async def tool_error() -> dict[str, Any]:
            return await settled(await start("fail"))

        async def timed_out() -> dict[str, Any]:
            return await settled(await start("short"))

        async def unknown_id() -> dict[str, Any]:
            return await settled("tsk_unknown")

        async def plain_call(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
            return {"text": text_of(await plain.call_tool(tool, arguments))}

        await report(
            working=working,
            input_required=input_required,
            cancelled=cancelled,
            tool_error=tool_error,
            timed_out=timed_out,
            unknown_id=unknown_id,
            missing_capability=lambda: plain_call("must", {}),
            plain_call=lambda: plain_call("slow", {"n": 3}),
        )


asyncio.run(main())
