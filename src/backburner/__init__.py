"""Backburner: durable long-running tasks for MCP servers."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .version import VERSION

if TYPE_CHECKING:
    from .app import Backburner as Backburner
    from .core.lifecycle import State as State
    from .core.retry import Retry as Retry
    from .core.task import Answer as Answer
    from .core.task import Artifact as Artifact
    from .core.task import Progress as Progress
    from .core.task import Resources as Resources
    from .core.task import Task as Task
    from .core.task import TaskError as TaskError
    from .errors import BackburnerError as BackburnerError
    from .errors import LeaseLost as LeaseLost
    from .errors import ProtocolError as ProtocolError
    from .errors import TaskCancelled as TaskCancelled
    from .mcp.adapters.extension import Tasks as Tasks
    from .service.tasks import TaskService as TaskService
    from .service.tasks import TaskStatus as TaskStatus
    from .settings import Queue as Queue
    from .settings import Settings as Settings
    from .store import open_store as open_store
    from .tools.context import TaskContext as TaskContext
    from .tools.results import MCPResult as MCPResult
    from .tools.spec import ToolSpec as ToolSpec


__version__ = VERSION

# Each public name and the module that has it: imported when it is first used, so that
# `import backburner` costs next to nothing.
_HOMES = {
    "Backburner": "app",
    "Queue": "settings",
    "Settings": "settings",
    "TaskContext": "tools.context",
    "BackburnerError": "errors",
    "LeaseLost": "errors",
    "ProtocolError": "errors",
    "TaskCancelled": "errors",
    "State": "core.lifecycle",
    "TaskService": "service.tasks",
    "TaskStatus": "service.tasks",
    "Tasks": "mcp.adapters.extension",
    "open_store": "store",
    "MCPResult": "tools.results",
    "Answer": "core.task",
    "Artifact": "core.task",
    "Progress": "core.task",
    "Resources": "core.task",
    "Retry": "core.retry",
    "Task": "core.task",
    "TaskError": "core.task",
    "ToolSpec": "tools.spec",
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
