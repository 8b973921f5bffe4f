"""The other side: calling slow tools, whatever their server speaks, and holding on to what they do."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..client_errors import ConnectionLost as ConnectionLost
    from ..client_errors import NotAuthorized as NotAuthorized
    from ..client_errors import NotOffered as NotOffered
    from ..client_errors import ResultLost as ResultLost
    from ..client_errors import TaskWasCancelled as TaskWasCancelled
    from ..mcp.dialects.task_id.host_poller import AsyncTask as AsyncTask
    from ..mcp.dialects.task_id.host_poller import HostPoller as HostPoller
    from ..mcp.dialects.tasks_2026.extension import TasksExtension as TasksExtension
    from ..mcp.updates import LogLine as LogLine
    from ..mcp.updates import TaskProgress as TaskProgress
    from ..mcp.updates import Update as Update
    from .artifacts import RemoteArtifact as RemoteArtifact
    from .bridge import Bridge as Bridge
    from .client import BackburnerClient as BackburnerClient
    from .display import TaskDisplay as TaskDisplay
    from .handle import TaskHandle as TaskHandle
    from .handle_file import HandleFile as HandleFile

# As in `backburner` itself: imported when first used.
_HOMES = {
    "RemoteArtifact": ".artifacts",
    "Bridge": ".bridge",
    "BackburnerClient": ".client",
    "TaskDisplay": ".display",
    "ConnectionLost": "..client_errors",
    "NotAuthorized": "..client_errors",
    "NotOffered": "..client_errors",
    "ResultLost": "..client_errors",
    "TaskWasCancelled": "..client_errors",
    "TasksExtension": "..mcp.dialects.tasks_2026.extension",
    "TaskHandle": ".handle",
    "HandleFile": ".handle_file",
    "AsyncTask": "..mcp.dialects.task_id.host_poller",
    "HostPoller": "..mcp.dialects.task_id.host_poller",
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
