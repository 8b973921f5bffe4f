"""Task and service errors as JSON-RPC errors."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS

from ..core.task import Task
from ..errors import BackburnerError, InvalidRequest, QueueFull, TaskNotFound

logger = logging.getLogger(__name__)

#: One message for unknown, expired and other owners' tasks.
NOT_FOUND = "Failed to retrieve task: Task not found"


def raised_error(task: Task) -> dict[str, Any] | None:
    """Return the JSON-RPC error that the task's tool raised, if any."""
    error = task.error
    if error is None or error.type != "protocol_error" or not error.data:
        return None
    shown = {"code": error.data["code"], "message": error.data["message"]}
    return shown if error.data.get("data") is None else {**shown, "data": error.data["data"]}


def task_error(task: Task) -> dict[str, Any]:
    """Return the JSON-RPC error of a task that failed without a tool result."""
    error, raised = task.error, raised_error(task)
    if raised is not None:
        return raised
    message = error.message if error else f"The task is {task.state}."
    return {
        "code": INTERNAL_ERROR,
        "message": message,
        "data": {"type": error.type if error else str(task.state)},
    }


def task_failure(task: Task) -> MCPError:
    error = task_error(task)
    return MCPError(error["code"], error["message"], error.get("data"))


def mcp_error(error: BackburnerError) -> MCPError:
    if isinstance(error, TaskNotFound):
        return MCPError(INVALID_PARAMS, NOT_FOUND)
    code = INVALID_PARAMS if isinstance(error, InvalidRequest) else INTERNAL_ERROR
    data: dict[str, Any] = {"code": error.code}
    if isinstance(error, QueueFull):
        data["retry_after_s"] = error.details["retry_after_s"]
    return MCPError(code, str(error), data)


def internal_error(error: Exception, method: str) -> MCPError:
    """Log an unexpected exception and return an error without its text, which may hold secrets."""
    logger.error("%s failed", method, exc_info=error)
    return MCPError(INTERNAL_ERROR, "Internal error; the server's log says more", {"code": "internal_error"})


@contextmanager
def jsonrpc_errors() -> Iterator[None]:
    """Convert BackburnerErrors raised in the block to JSON-RPC errors."""
    try:
        yield
    except BackburnerError as error:
        raise mcp_error(error) from error
