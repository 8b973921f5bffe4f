"""Servers that have never heard of Backburner: one as the two-stage document writes it, one that is plain.

python seed_server.py two-stage|inline stdio
python seed_server.py two-stage|inline http PORT
"""

from __future__ import annotations

import sys
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

TOOLS = ("count", "fail")


def outcome(name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
    return ("it broke", True) if name == "fail" else (f"counted to {arguments.get('n', 3)}", False)


async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    return types.ListToolsResult(tools=[types.Tool(name=name, input_schema=schema) for name in TOOLS])


def inline() -> Server[Any]:
    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        text, is_error = outcome(params.name, params.arguments or {})
        await ctx.session.report_progress(1, 2, "half")
        return types.CallToolResult(content=[types.TextContent(text=text)], is_error=is_error)

    return Server("inline", on_list_tools=list_tools, on_call_tool=call_tool)


def two_stage() -> Server[Any]:
    """Answers with bare `{success, data, messages}`, and is polled by `tools/poll_result`."""
    jobs: dict[str, tuple[str, dict[str, Any]]] = {}
    polls: dict[str, int] = {}

    async def bare(ctx: Any, call_next: Any) -> Any:
        params = ctx.params or {}
        if ctx.method == "tools/call":
            job_id = f"job-{len(jobs)}"
            jobs[job_id] = (params["name"], params.get("arguments") or {})
            data = {"job_id": job_id, "estimated_runtime_seconds": 0.1, "status": "queued"}
            return {"success": True, "data": data, "messages": [{"type": "info", "text": "Queued"}]}
        if ctx.method == "tools/poll_result":
            return poll(params["job_id"])
        return await call_next(ctx)

    def poll(job_id: str) -> dict[str, Any]:
        if job_id not in jobs:
            return {"success": False, "data": {}, "messages": [{"type": "error", "text": "Job not found"}]}
        polls[job_id] = polls.get(job_id, 0) + 1
        if polls[job_id] == 1:
            data: dict[str, Any] = {"job_id": job_id, "status": "running", "progress": 0.5}
            return {"success": True, "data": data, "messages": []}
        text, is_error = outcome(*jobs[job_id])
        kind = "error" if is_error else "success"
        result = {"success": not is_error, "data": {}, "messages": [{"type": kind, "text": text}]}
        data = {"job_id": job_id, "status": "complete", "result": result}
        return {"success": True, "data": data, "messages": []}

    server: Server[Any] = Server("two-stage", on_list_tools=list_tools)
    server.middleware.append(bare)
    return server


async def serve_stdio(server: Server[Any]) -> None:
    async with stdio_server() as (reads, writes):
        await server.run(reads, writes, server.create_initialization_options())


if __name__ == "__main__":
    made = {"two-stage": two_stage, "inline": inline}[sys.argv[1]]()
    if sys.argv[2] == "stdio":
        anyio.run(serve_stdio, made)
    else:
        import uvicorn

        uvicorn.run(made.streamable_http_app(), host="127.0.0.1", port=int(sys.argv[3]), log_level="critical")
