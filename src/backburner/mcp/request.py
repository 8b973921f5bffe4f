"""Who calls, what they speak, and so how their call of a slow tool is answered."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types.jsonrpc import HEADER_MISMATCH, METHOD_NOT_FOUND, MISSING_REQUIRED_CLIENT_CAPABILITY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ..tools import ToolSpec

RequestContext = ServerRequestContext[Any, Any]

TASKS_EXTENSION = "io.modelcontextprotocol/tasks"
RELATED_TASK = "io.modelcontextprotocol/related-task"
TASKS_2025 = "2025-11-25"


class Way(Enum):
    """How a call of a slow tool is answered."""

    TASK_2026 = "a task of the 2026-07-28 extension"
    TASK_2025 = "a task of the 2025-11-25 revision"
    PLAIN = "by the tool's answer mode"


def is_modern(ctx: RequestContext) -> bool:
    """Whether the request is of the era without sessions and handshakes, 2026-07-28 and later."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def declares_tasks(ctx: RequestContext) -> bool:
    """Whether the client declared the tasks extension on this request."""
    return declares(ctx, types.ClientCapabilities(extensions={TASKS_EXTENSION: {}}))


def declares(ctx: RequestContext, capability: types.ClientCapabilities) -> bool:
    return ctx.session.check_client_capability(capability)


def choose_way(ctx: RequestContext, spec: ToolSpec) -> Way:
    """How to answer this call. Raises MCPError where the tool's `task` mode and the request disagree."""
    params = ctx.params or {}
    if is_modern(ctx):
        if spec.task == "never":
            return Way.PLAIN
        if declares_tasks(ctx):
            return Way.TASK_2026
        if spec.task == "required":
            raise missing_capability({"extensions": {TASKS_EXTENSION: {}}})
        return Way.PLAIN
    wants_task = ctx.protocol_version == TASKS_2025 and params.get("task") is not None
    if wants_task and spec.task == "never":
        raise task_not_supported(spec.name)
    if spec.task == "required" and not wants_task and ctx.protocol_version == TASKS_2025:
        # Older revisions know no tasks at all: there the tool is answered like any other.
        raise MCPError(
            METHOD_NOT_FOUND, f"Tool {spec.name!r} can only be called as a task: add `task` to the call"
        )
    return Way.TASK_2025 if wants_task else Way.PLAIN


def task_not_supported(tool_name: Any) -> MCPError:
    return MCPError(
        METHOD_NOT_FOUND, f"Tool {tool_name!r} cannot be called as a task: call it without `task`"
    )


def missing_capability(required: Mapping[str, Any]) -> MCPError:
    data = {"requiredCapabilities": dict(required)}
    return MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "Missing required client capability", data)


def require_tasks(ctx: RequestContext) -> None:
    """Raise MCPError unless the client declared the tasks extension on this request."""
    if not declares_tasks(ctx):
        raise missing_capability({"extensions": {TASKS_EXTENSION: {}}})


def check_name_header(ctx: RequestContext, task_id: str) -> None:
    """Over HTTP, `Mcp-Name` is what routers went by, so it must be the task that the body names."""
    headers = getattr(ctx.request, "headers", None)
    named = None if headers is None else headers.get(MCP_NAME_HEADER)
    if named is not None and decode_header_value(named) != task_id:
        raise MCPError(HEADER_MISMATCH, "The Mcp-Name header does not match params.taskId")


def only_at(ctx: RequestContext, *, modern: bool) -> None:
    """Raise `Method not found` for a method that the request's revision does not have."""
    known = is_modern(ctx) if modern else ctx.protocol_version == TASKS_2025
    if not known:
        raise MCPError(METHOD_NOT_FOUND, "Method not found", ctx.method)


def request_meta(ctx: RequestContext) -> Mapping[str, Any]:
    meta = (ctx.params or {}).get("_meta")
    return meta if isinstance(meta, Mapping) else {}


def connection_of(ctx: RequestContext) -> Any:
    """What stands for the client's connection: sessions are made anew for each request."""
    return getattr(ctx.session, "_connection", ctx.session)
