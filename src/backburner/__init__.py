"""Backburner: durable long-running tasks for MCP servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .context import Answer as Answer
    from .context import TaskContext as TaskContext
    from .errors import BackburnerError as BackburnerError

__version__ = "0.1.0"
