"""What authors write by hand for a slow tool: one to start it, one to look, one to get the result.

The jobs are in the server's memory. `python hand_made_server.py stdio|PORT`
"""

from __future__ import annotations

import asyncio
import secrets
import sys

from crunching import crunch
from mcp.server.mcpserver import MCPServer

server = MCPServer("agents", log_level="ERROR")
jobs: dict[str, asyncio.Task[str]] = {}


@server.tool()
async def start_crunch(case: str, seconds: float) -> str:
    """Start to crunch the numbers of a case. Gives the id of the job; crunch_status tells how it goes."""
    job_id = secrets.token_hex(8)
    jobs[job_id] = asyncio.create_task(crunch(case, seconds))
    return f"Started as job {job_id}. Call crunch_status with this job_id to see whether it is done."


@server.tool()
async def crunch_status(job_id: str) -> str:
    """Whether a job is done. Call crunch_result when it is."""
    if job_id not in jobs:
        return f"There is no job {job_id}."
    if jobs[job_id].done():
        return f"Job {job_id} is done. Call crunch_result with this job_id."
    return f"Job {job_id} is running."


@server.tool()
async def crunch_result(job_id: str) -> str:
    """The report of a job that is done."""
    if job_id not in jobs or not jobs[job_id].done():
        return f"Job {job_id} has no result. Call crunch_status with this job_id."
    return await jobs[job_id]


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run()
    else:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
