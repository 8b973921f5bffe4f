"""Backburner: durable long-running tasks for MCP servers."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .version import VERSION

if TYPE_CHECKING:
    from .app import Backburner as Backburner
    from .config import Queue as Queue
    from .config import Settings as Settings
    from .context import TaskContext as TaskContext
    from .errors import BackburnerError as BackburnerError
    from .errors import LeaseLost as LeaseLost
    from .errors import ProtocolError as ProtocolError
    from .errors import TaskCancelled as TaskCancelled
    from .lifecycle import State as State
    from .mcp_result import MCPResult as MCPResult
    from .retry import Retry as Retry
    from .service import TaskService as TaskService
    from .service import TaskStatus as TaskStatus
    from .stores import open_store as open_store
    from .task import Answer as Answer
    from .task import Artifact as Artifact
    from .task import Progress as Progress
    from .task import Resources as Resources
    from .task import Task as Task
    from .task import TaskError as TaskError
    from .tools import ToolSpec as ToolSpec

__version__ = VERSION

# Each public name and the module that has it: imported when it is first used, so that
# `import backburner` costs next to nothing.
_HOMES = {
    "Backburner": "app",
    "Queue": "config",
    "Settings": "config",
    "TaskContext": "context",
    "BackburnerError": "errors",
    "LeaseLost": "errors",
    "ProtocolError": "errors",
    "TaskCancelled": "errors",
    "State": "lifecycle",
    "TaskService": "service",
    "TaskStatus": "service",
    "open_store": "stores",
    "MCPResult": "mcp_result",
    "Answer": "task",
    "Artifact": "task",
    "Progress": "task",
    "Resources": "task",
    "Retry": "retry",
    "Task": "task",
    "TaskError": "task",
    "ToolSpec": "tools",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'backburner' has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
