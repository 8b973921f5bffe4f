"""The client of `fastmcp` 4 with its tasks at 2026-07-28.

python python_fastmcp_4.py http URL
python python_fastmcp_4.py stdio COMMAND ARGUMENT...
"""

import asyncio
import logging
import os
import sys
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StdioTransport

from tests.system.interop.clients.programs import report


def target() -> Any:
    kind, target, *arguments = sys.argv[1:]
    return (
        target
        if kind == "http"
        else StdioTransport(target, arguments, env=dict(os.environ), keep_alive=False)
    )


async def without_tasks() -> None:
    async with Client(target()) as plain:

        async def call(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
            return {"text": (await plain.call_tool(tool, arguments)).content[0].text}

        await report(
            missing_capability=lambda: call("must", {}),
            plain_call=lambda: call("slow", {"n": 3}),
        )


async def with_tasks() -> None:
    from fastmcp_tasks import ToolTask, call_tool_task

    asked: list[str] = []

    async def answer(message: str, response_type: Any, params: Any, context: Any) -> dict[str, str]:
        asked.append(message)
        return {"name": "Ada"}

    async with Client(target(), elicitation_handler=answer) as client:

        async def start(tool: str, arguments: dict[str, Any] | None = None) -> ToolTask:
            return await call_tool_task(client, tool, arguments or {}, raise_on_error=False)

        async def settled(task: ToolTask, *seen: str) -> dict[str, Any]:
            result = await task.result()
            status = await task.status()
            return {
                "seen": [task.create_result.status, *seen],
                "status": status.status,
                "text": result.content[0].text,
                "isError": result.is_error,
                **(status.error or {}),
            }

        async def working() -> dict[str, Any]:
            return await settled(await start("slow", {"n": 3, "step_s": 0.1}))

        async def input_required() -> dict[str, Any]:
            task = await start("ask")
            waiting = await task.wait(state="input_required")
            return {**await settled(task, waiting.status), "asked": asked}

        async def cancelled() -> dict[str, Any]:
            task = await start("slow", {"n": 10_000})
            await task.cancel()
            return {"status": (await task.wait()).status}

        async def tool_error() -> dict[str, Any]:
            return await settled(await start("fail"))

        async def timed_out() -> dict[str, Any]:
            return await settled(await start("short"))

        async def unknown_id() -> dict[str, Any]:
            made = (await start("slow", {"n": 1})).create_result
            unknown = ToolTask(client, "slow", made.model_copy(update={"task_id": "tsk_unknown"}))
            return {"status": (await unknown.status()).status}

        await report(
            working=working,
            input_required=input_required,
            cancelled=cancelled,
            tool_error=tool_error,
            timed_out=timed_out,
            unknown_id=unknown_id,
        )


async def main() -> None:
    logging.disable(logging.WARNING)
    # To import fastmcp_tasks is to declare the capability for each client of the process.
    await without_tasks()
    await with_tasks()


asyncio.run(main())
