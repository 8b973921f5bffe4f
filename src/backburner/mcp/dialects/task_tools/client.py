"""The task tools of a Backburner server, seen from the client: progress, logs and artifacts."""

from __future__ import annotations

from typing import Any

from ....errors import NotOffered
from ...connection import Connection
from ...updates import LogLine, TaskProgress

_STATUS = "get_task_status"


class TaskTools:
    """Calls the task tools, under whatever prefix the server lists them."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    async def _named(self, name: str) -> str | None:
        tools = await self.connection.tools()
        prefix = next((tool.removesuffix(_STATUS) for tool in tools if tool.endswith(_STATUS)), None)
        return prefix + name if prefix is not None and prefix + name in tools else None

    async def offered(self) -> bool:
        return await self._named(_STATUS) is not None

    async def call(self, name: str, task_id: str, **arguments: Any) -> dict[str, Any]:
        """The structured result. Raises NotOffered if the server has no such tool, or no such task."""
        named = await self._named(name)
        if named is None:
            raise NotOffered(what=f"{name}", task_id=task_id)
        params = {"name": named, "arguments": {"task_id": task_id, **arguments}}
        result = await self.connection.request("tools/call", params)
        if result.get("isError"):
            raise NotOffered(what=f"{name} ({result['content'][0].get('text')})", task_id=task_id)
        return dict(result["structuredContent"])

    async def progress(self, task_id: str) -> TaskProgress | None:
        if not await self.offered():
            return None
        return progress_of(await self.call(_STATUS, task_id))

    async def logs(self, task_id: str, cursor: str | None) -> tuple[list[LogLine], str, bool]:
        """Lines after the cursor, the cursor after them, and whether more are there already."""
        page = await self.call("tail_task_logs", task_id, **({} if cursor is None else {"cursor": cursor}))
        return [LogLine(**line) for line in page["lines"]], page["next_cursor"], page["truncated"]


def progress_of(status: dict[str, Any]) -> TaskProgress | None:
    """What a status tells of the progress; as long as the tool tells nothing, its state."""
    told = status.get("progress")
    if not told:
        return TaskProgress(phase=status.get("state"))
    return TaskProgress(told.get("percent"), told.get("phase"), told.get("message"), status.get("eta_s"))
