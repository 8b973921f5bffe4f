"""The other side: calling slow tools, whatever their server speaks, and holding on to what they do."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .artifacts import RemoteArtifact as RemoteArtifact
    from .bridge import Bridge as Bridge
    from .client import BackburnerClient as BackburnerClient
    from .display import TaskDisplay as TaskDisplay
    from .errors import ConnectionLost as ConnectionLost
    from .errors import NotOffered as NotOffered
    from .errors import TaskWasCancelled as TaskWasCancelled
    from .extension import TasksExtension as TasksExtension
    from .handle import TaskHandle as TaskHandle
    from .handle_file import HandleFile as HandleFile
    from .host_poller import AsyncTask as AsyncTask
    from .host_poller import HostPoller as HostPoller
    from .updates import LogLine as LogLine
    from .updates import TaskProgress as TaskProgress
    from .updates import Update as Update

# As in `backburner` itself: imported when first used.
_HOMES = {
    "RemoteArtifact": "artifacts",
    "Bridge": "bridge",
    "BackburnerClient": "client",
    "TaskDisplay": "display",
    "ConnectionLost": "errors",
    "NotOffered": "errors",
    "TaskWasCancelled": "errors",
    "TasksExtension": "extension",
    "TaskHandle": "handle",
    "HandleFile": "handle_file",
    "AsyncTask": "host_poller",
    "HostPoller": "host_poller",
    "LogLine": "updates",
    "TaskProgress": "updates",
    "Update": "updates",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'backburner.client' has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
