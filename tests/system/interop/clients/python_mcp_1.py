"""The client of `mcp` 1.x, whose experimental tasks are those of 2025-11-25.

python python_mcp_1.py http URL
python python_mcp_1.py stdio COMMAND ARGUMENT...
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client

from tests.system.interop.clients.programs import report


@contextlib.asynccontextmanager
async def connected(**options: Any) -> AsyncIterator[ClientSession]:
    kind, target, *arguments = sys.argv[1:]
    if kind == "http":
        transport = streamablehttp_client(target)
    else:
        transport = stdio_client(StdioServerParameters(command=target, args=arguments, env=dict(os.environ)))
    async with transport as (reads, writes, *_), ClientSession(reads, writes, **options) as session:
        await session.initialize()
        yield session


async def main() -> None:
    asked: list[str] = []

    async def answer(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async with connected(elicitation_callback=answer) as session, connected() as plain:
        tasks = session.experimental

        async def start(tool: str, arguments: dict[str, Any] | None = None) -> str:
            created = await tasks.call_tool_as_task(tool, arguments or {}, ttl=60_000)
            return created.task.taskId

        async def polled(task_id: str, *until: str) -> tuple[list[str], types.GetTaskResult]:
            seen = []
            async for task in tasks.poll_task(task_id):
                seen.append(task.status)
                if task.status in until:
                    break
            return seen, task

        async def result(task_id: str) -> dict[str, Any]:
            given = await tasks.get_task_result(task_id, types.CallToolResult)
            return {"text": given.content[0].text, "isError": given.isError}

        async def working() -> dict[str, Any]:
            task_id = await start("slow", {"n": 3, "step_s": 0.7})
            seen, task = await polled(task_id)
            return {"seen": seen, "status": task.status, **await result(task_id)}

        async def input_required() -> dict[str, Any]:
            task_id = await start("ask")
            seen, _ = await polled(task_id, "input_required")
            # This client is asked while it waits for the result.
            given = await result(task_id)
            status = (await tasks.get_task(task_id)).status
            return {"seen": seen, "asked": asked, "status": status, **given}

        async def cancelled() -> dict[str, Any]:
            return {"status": (await tasks.cancel_task(await start("slow", {"n": 10_000}))).status}

        async def tool_error() -> dict[str, Any]:
            task_id = await start("fail")
            _, task = await polled(task_id)
            return {"status": task.status, "message": task.statusMessage, **await result(task_id)}

        async def timed_out() -> dict[str, Any]:
            _, task = await polled(await start("short"))
            return {"status": task.status, "message": task.statusMessage}

        async def unknown_id() -> dict[str, Any]:
            return {"status": (await tasks.get_task("tsk_unknown")).status}

        async def plain_call(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
            return {"text": (await plain.call_tool(tool, arguments)).content[0].text}

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
