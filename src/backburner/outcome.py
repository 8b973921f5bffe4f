"""What became of the call of a tool: the outcome that a runner reports, from what was returned or raised."""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from . import json_text, tools
from .context import TaskContext
from .errors import BackburnerError, InvalidJson, ProtocolError, TaskCancelled, ToolFailed
from .mcp_result import MCPResult
from .result_parts import kept_in_parts, stand_in
from .task import TaskError
from .tools import ToolSpec

_LONGEST_MESSAGE, _LONGEST_DETAILS, _LONGEST_NAME = 10_000, 100_000, 200
_LARGEST_ERROR_DATA = 1_000_000
#: What calls a tool: its frames are not the tool's.
_OURS = (str(Path(__file__).with_name("execution.py")), tools.__file__)


def returned(spec: ToolSpec, value: Any, context: TaskContext, most_bytes: int) -> dict[str, Any]:
    """The outcome of a tool that did not raise. One that returned an MCPResult says itself how it went.

    What is larger than `most_bytes` is kept as an artifact.
    """
    if spec.result_kind == "value":
        said = MCPResult.of(value)
        if said is not None and said.success:
            value = said.to_dict()
    else:
        said = MCPResult.in_tool_result(value)
    if said is None or said.success:
        return _succeeded(spec, value, context, most_bytes)
    data: dict[str, Any] = {"mcp_result": _plain(said.to_dict())}
    text = json_text.encode(data["mcp_result"], "The result")
    if len(text.encode()) > min(most_bytes, _LARGEST_ERROR_DATA):
        data["mcp_result"]["data"] = stand_in(None, text, "value", **_kept(text, context))
    elif spec.result_kind == "call_tool_result":
        data["result"] = {**value, "isError": True}
    message = said.error_text or f"{spec.name} says that it failed, and not why."
    return _error("tool_error", message, MCPResult.__name__, said.error_details, data)


def _succeeded(spec: ToolSpec, value: Any, context: TaskContext, most_bytes: int) -> dict[str, Any]:
    try:
        value = _plain(value)
        text = json_text.encode(value, "The result")
    except (InvalidJson, TypeError, ValueError, RecursionError) as error:
        return _error("result_not_serialisable", str(error), exception=type(error).__name__)
    too_many = len(text.encode()) - most_bytes
    if too_many > 0 and spec.result_kind == "call_tool_result":
        value = kept_in_parts(value, too_many, partial(_keep, context))
        text = json_text.encode(value, "The result")
    if len(text.encode()) > most_bytes:
        text = json.dumps(stand_in(value, text, spec.result_kind, **_kept(text, context)))
    return {"kind": "succeeded", "result_json": text}


def _keep(context: TaskContext, data: bytes, name: str, kind: str) -> str:
    return context.artifact(data, name=name, kind=kind).artifact_id


def _kept(text: str, context: TaskContext) -> dict[str, Any]:
    """Where a result is that is too large."""
    artifact = context.artifact(text.encode(), name="result.json", kind="result")
    return {"size_bytes": artifact.size_bytes, "artifact_id": artifact.artifact_id}


def _plain(value: Any) -> Any:
    """`value` as plain JSON data; models, dataclasses and the like are turned into it."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    try:
        json.dumps(value)
    except RecursionError:
        return value  # whoever encodes it says so
    except (TypeError, ValueError):
        from pydantic_core import to_jsonable_python

        return to_jsonable_python(value)
    return value


def failed(error: BaseException, context: TaskContext, memory_mb: int | None = None) -> dict[str, Any]:
    """The outcome of a tool that raised, or was cancelled. `memory_mb` is its limit."""
    cancelled = isinstance(error, TaskCancelled | asyncio.CancelledError | KeyboardInterrupt)
    if cancelled and context.cancelled:
        return {**_error("cancelled", "The task was cancelled."), "kind": "cancelled"}
    if (protocol_error := _as_protocol_error(error)) is not None:
        return _protocol_error(protocol_error.details, _about(error.__cause__))
    if isinstance(error, ToolFailed):
        return _error(
            "tool_error", str(error), **_about(error.__cause__), data={"result": error.details["result"]}
        )
    exception = type(error).__name__
    details_text = traceback_of(error)
    if isinstance(error, MemoryError):
        limit = "there is" if memory_mb is None else f"its limit of {memory_mb} MB"
        return _error(
            "memory_exceeded", f"The tool needed more memory than {limit}.", exception, details_text
        )
    message = _message(error)
    if isinstance(error, KeyError) or " " not in message:  # `'missing'` alone tells nothing
        message = f"{exception}: {message}" if message else exception
    if isinstance(error, BackburnerError):
        exception = error.code
    if isinstance(error, SystemExit):
        message = f"The tool ended its process with exit code {error.code}."
    return _error("tool_error", message, exception, details_text)


def _as_protocol_error(error: BaseException) -> ProtocolError | None:
    """The JSON-RPC error that a tool raised: ours, or the MCP SDK's own, which is imported then."""
    if isinstance(error, ProtocolError):
        return error
    sdk = sys.modules.get("mcp.shared.exceptions")
    if sdk is not None and isinstance(error, sdk.MCPError):
        with suppress(AttributeError):  # of a subclass that does not call its base
            return ProtocolError(error.code, error.message, error.data)
    return None


def _about(raised: BaseException | None) -> dict[str, str]:
    """What an attached tool raised, where its framework, or the SDK, made another error of it."""
    if raised is None:
        return {}
    return {"exception": type(raised).__name__, "details": traceback_of(raised)}


def _protocol_error(details: dict[str, Any], about: dict[str, str]) -> dict[str, Any]:
    """Without its data where that cannot be kept: the code and the message count."""
    message = details["message"]
    told = {"code": details["error_code"], "message": _shortened(message, _LONGEST_MESSAGE)}
    with suppress(TypeError, ValueError, RecursionError):
        outcome = _error("protocol_error", message, **about, data={**told, "data": _plain(details["data"])})
        if "data" in outcome["error"]:
            return outcome
    return _error("protocol_error", message, **about, data={**told, "data": None})


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return ""  # an exception that cannot even say what it is


def traceback_of(error: BaseException) -> str:
    """From the tool's own code on."""
    first = frame = error.__traceback__
    while frame is not None and frame.tb_next:
        if frame.tb_frame.f_code.co_filename in _OURS:
            first = frame.tb_next
        frame = frame.tb_next
    return "".join(traceback.format_exception(type(error), error, first))


def add_details(error: dict[str, Any], details: str) -> None:
    """Tell more of an error of an outcome."""
    error["details"] = _shortened(f"{error.get('details', '')}\n{details}", _LONGEST_DETAILS)


def _error(
    kind: str, message: str, exception: str = "", details: str = "", data: dict[str, Any] | None = None
) -> dict[str, Any]:
    try:
        if len(json_text.encode(data)) > _LARGEST_ERROR_DATA:
            data = None
    except InvalidJson:
        data = None
    message, details = _shortened(message, _LONGEST_MESSAGE), _shortened(details, _LONGEST_DETAILS)
    exception = json_text.storable(exception[:_LONGEST_NAME])
    return {"kind": "failed", "error": TaskError(kind, message, exception, details, data).to_dict()}


def _shortened(text: str, longest: int) -> str:
    """The beginning and the end of a text that is too long, as a store can keep them."""
    if len(text) > longest:
        text = f"{text[: longest // 2]}\n... ({len(text)} characters)\n{text[-longest // 2 :]}"
    return json_text.storable(text)
