"""Makes calls with the client of `mcp` 2.x at 2026-07-28, and prints what came of each: see `calls.py`.

python calls_mcp_2.py held|task URL
"""

import asyncio
import sys
from collections.abc import Sequence
from typing import Any, Literal

import httpx2
import mcp_types as types
from mcp.client import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from tests.system.interop.clients.calls import CLIENT, HEADERS, META, Call, Heard, make_calls


class CreatedTask(types.Result):
    task_id: str
    result_type: Literal["task"] = "task"


class DetailedTask(types.Result):
    status: str
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class TaskParams(types.RequestParams):
    task_id: str


class TaskRequest(types.Request[TaskParams, str]):
    name_param = "taskId"


class TasksExtension(ClientExtension):
    identifier = "io.modelcontextprotocol/tasks"

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=CreatedTask, resolve=self._wait)]

    async def _wait(self, created: CreatedTask, context: ClaimContext) -> types.CallToolResult:
        request = TaskRequest(method="tasks/get", params=TaskParams(task_id=created.task_id))
        while True:
            task = await context.session.send_request(request, DetailedTask)
            if task.error is not None:
                raise MCPError(task.error["code"], task.error["message"], task.error.get("data"))
            if task.result is not None:
                return types.CallToolResult.model_validate(task.result)
            await asyncio.sleep(0.05)


async def main() -> None:
    heard = Heard()

    async def call(asked: Call, as_task: bool) -> Any:
        return await client.call_tool(
            asked.tool, asked.arguments, None, None if as_task else heard.progress, meta=META
        )

    async with httpx2.AsyncClient(headers=HEADERS, timeout=60) as http:
        client = Client(
            streamable_http_client(make_calls.url, http_client=http),
            mode="2026-07-28",
            logging_callback=heard.log,
            client_info=types.Implementation(**CLIENT),
            extensions=[TasksExtension()] if sys.argv[1] == "task" else [],
        )
        async with client:
            await client.list_tools()
            await make_calls(call, heard)


asyncio.run(main())
