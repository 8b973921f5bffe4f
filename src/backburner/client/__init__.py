"""Client: calls slow tools on any MCP server and tracks their tasks."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..errors import ConnectionLost as ConnectionLost
    from ..errors import NotAuthorized as NotAuthorized
    from ..errors import NotOffered as NotOffered
    from ..errors import ResultLost as ResultLost
    from ..errors import TaskWasCancelled as TaskWasCancelled
    from ..mcp.dialects.task_id.client import AsyncTask as AsyncTask
    from ..mcp.dialects.task_id.client import HostPoller as HostPoller
    from ..mcp.dialects.tasks_2026.client import TasksExtension as TasksExtension
    from ..mcp.updates import LogLine as LogLine
    from ..mcp.updates import TaskProgress as TaskProgress
    from ..mcp.updates import Update as Update
    from .bridge import Bridge as Bridge
    from .client import BackburnerClient as BackburnerClient
    from .display import TaskDisplay as TaskDisplay
    from .handle import HandleFile as HandleFile
    from .handle import RemoteArtifact as RemoteArtifact
    from .handle import TaskHandle as TaskHandle


# As in `backburner` itself: imported when first used.
_HOMES = {
    "RemoteArtifact": ".handle",
    "Bridge": ".bridge",
    "BackburnerClient": ".client",
    "TaskDisplay": ".display",
    "ConnectionLost": "..errors",
    "NotAuthorized": "..errors",
    "NotOffered": "..errors",
    "ResultLost": "..errors",
    "TaskWasCancelled": "..errors",
    "TasksExtension": "..mcp.dialects.tasks_2026.client",
    "TaskHandle": ".handle",
    "HandleFile": ".handle",
    "AsyncTask": "..mcp.dialects.task_id.client",
    "HostPoller": "..mcp.dialects.task_id.client",
    "LogLine": "..mcp.updates",
    "TaskProgress": "..mcp.updates",
    "Update": "..mcp.updates",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'backburner.client' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
