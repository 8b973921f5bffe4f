"""The log messages that an attached tool sends to its client, as lines of its task's log, and back again.

A line is what people read, so it is the text of the message where the stream alone can tell the rest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from mcp.server.connection import allowed_log_levels

from ..service import TaskService
from ..task import LogLine, Task
from .outbox import connection_state, notification
from .request import RequestContext, request_meta

#: The data is the text itself; an object that FastMCP makes of the text; or else the line is JSON of both.
_TEXT, _NOTE, _JSON = "message", "message.note", "message.json"
_LEVEL = "backburner.log-level"
_PAGE = 200
#: From the least to the most severe.
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


def as_line(params: Mapping[str, Any]) -> tuple[str, str]:
    """The stream and the text of a line that stands for a `notifications/message`."""
    data, logger = params.get("data"), params.get("logger")
    if logger is None and isinstance(data, str):
        return _TEXT, data
    if logger is None and isinstance(data, Mapping) and data == _note(data.get("msg")):
        return _NOTE, str(data["msg"])
    return _JSON, json.dumps({"logger": logger, "data": data}, ensure_ascii=False)


def as_params(line: LogLine) -> dict[str, Any] | None:
    """The parameters of the message that a line stands for; None for any other line."""
    if line.level not in LEVELS:
        return None
    if line.stream == _TEXT:
        return {"level": line.level, "data": line.message}
    if line.stream == _NOTE:
        return {"level": line.level, "data": _note(line.message)}
    if line.stream == _JSON:
        with suppress(ValueError, KeyError, TypeError):  # whatever a tool wrote itself
            kept = json.loads(line.message)
            named = {} if kept["logger"] is None else {"logger": kept["logger"]}
            return {"level": line.level, "data": kept["data"], **named}
    return None


def _note(text: Any) -> dict[str, Any] | None:
    return {"msg": text, "extra": None} if isinstance(text, str) else None


class LogMessages:
    """`notifications/message` for one held call of an attached tool, as its client had them before."""

    def __init__(self, ctx: RequestContext, service: TaskService, task: Task) -> None:
        self._ctx, self._service, self._task = ctx, service, task
        self._cursor: str | None = None
        levels = allowed_log_levels(ctx.protocol_version, request_meta(ctx))
        least = LEVELS.index(connection_state(ctx).get(_LEVEL, LEVELS[0]))
        self._levels = levels.intersection(LEVELS[least:])
        self.wanted = bool(self._levels) and task.result_kind == "call_tool_result"

    async def say(self) -> None:
        """Send those that the tool has written since the last time."""
        more = self.wanted
        while more:
            page = await self._service.aio.logs(
                self._task.task_id, owner=self._task.owner, cursor=self._cursor, limit=_PAGE
            )
            self._cursor, more = page.next_cursor, page.truncated
            for params in map(as_params, page.lines):
                if params is not None and params["level"] in self._levels:
                    await self._ctx.session.send_notification(
                        notification("notifications/message", params), self._ctx.request_id
                    )


def note_level(ctx: RequestContext) -> None:
    """The client has said from which level on it wants to hear log messages."""
    level = (ctx.params or {}).get("level")
    if level in LEVELS:
        connection_state(ctx)[_LEVEL] = level
