"""Runs an attached server's tool in a runner, through the server's own pipeline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import anyio
import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.lowlevel.server import Server
from mcp.server.runner import serve_one
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.jsonrpc_dispatcher import handler_exception_to_error_data
from mcp.shared.message import MessageMetadata, ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types import InputRequiredResult
from mcp_types.jsonrpc import INTERNAL_ERROR
from mcp_types.methods import is_input_required
from mcp_types.version import LATEST_HANDSHAKE_VERSION

from ...core.questions import ASKABLE
from ...errors import ProtocolError, ToolFailed
from ...tools.context import TaskContext
from ..middleware import IN_RUNNER
from ..notifications import as_line
from ..requests import RequestContext, StoredRequest, as_dict, restore_caller

_CALL = "tools/call"
_FRAMEWORKS = ("mcp.server.mcpserver.", "fastmcp.")


@dataclass
class InputRound:
    """One round of a call. `required` is the input that the tool wants, `raised` its exception."""

    responses: Mapping[str, Any]
    state: str | None = None
    required: types.InputRequiredResult | None = None
    raised: BaseException | None = None


#: The current round; None outside a runner.
CURRENT_ROUND: ContextVar[InputRound | None] = ContextVar("backburner_round", default=None)


async def recording_exceptions(call: Awaitable[Any]) -> Any:
    """Await a framework's tool call and record its exception; the outermost call ends last."""
    under_way, raised = CURRENT_ROUND.get(), None
    try:
        return await call
    except Exception as error:
        raised = _raised_by_tool(error)
        raise
    finally:
        if under_way is not None:
            under_way.raised = raised


def _raised_by_tool(error: BaseException) -> BaseException:
    """Return the tool's exception behind those of the framework."""
    while error.__cause__ is not None and _is_of_framework(error):
        error = error.__cause__
    return error


def _is_of_framework(error: BaseException) -> bool:
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return frame is not None and str(frame.tb_frame.f_globals.get("__name__")).startswith(_FRAMEWORKS)


def install_round_handler(server: Server[Any]) -> None:
    """Wrap the server's tool handler once, so that it uses the current round."""
    entry = server.get_request_handler(_CALL)
    if entry is not None and not isinstance(entry.handler, _RoundHandler):
        server.add_request_handler(_CALL, entry.params_type, _RoundHandler(entry.handler))


class _RoundHandler:
    """The server's handler, with the round added to the request and taken from the result."""

    def __init__(self, handler: Any) -> None:
        self._handler = handler

    async def __call__(self, ctx: RequestContext, params: Any) -> Any:
        under_way = CURRENT_ROUND.get()
        if under_way is None:
            return await self._handler(ctx, params)
        if under_way.state is not None:
            ctx = replace(ctx, params={**(ctx.params or {}), "requestState": under_way.state})
            params = params.model_copy(update={"request_state": under_way.state})
        try:
            result = await self._handler(ctx, params)
        except MCPError:
            # FastMCP cannot ask at this revision; its adapter has recorded the required input.
            if under_way.required is None:
                raise
            return types.CallToolResult(content=[])
        if is_input_required(result):
            under_way.required = types.InputRequiredResult.model_validate(result)
            return types.CallToolResult(content=[])
        return result


#: Protocol revision in a runner: the last at which a tool may send requests to its client.
_VERSION = LATEST_HANDSHAKE_VERSION
_CLIENT = {"name": "backburner", "version": "1"}
_CAPABILITIES: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}

#: Most input rounds of a call, as in the SDK's clients.
_MOST_ROUNDS = 10
#: Delay before the next round of a tool that only asks to be called again.
_CALL_AGAIN_S = 0.25


class Pipeline:
    """Calls an attached server's tools within its lifespan."""

    def __init__(self, server: Server[Any]) -> None:
        self._server = server
        self._given: list[Any] = []  # state of the open lifespan

    def tool(self, name: str) -> Callable[[dict[str, Any], TaskContext], Awaitable[dict[str, Any]]]:
        """Return the `run` of a ToolSpec for a tool of the server."""

        async def run(inputs: dict[str, Any], context: TaskContext) -> dict[str, Any]:
            return await self.call(name, inputs, context)

        return run

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Enter the server's lifespan, once per runner."""
        IN_RUNNER.set(True)
        async with self._server.lifespan(self._server) as given:
            self._given.append(given)
            try:
                yield
            finally:
                self._given.remove(given)

    async def call(self, name: str, inputs: dict[str, Any], context: TaskContext) -> dict[str, Any]:
        """Return the tool's `CallToolResult`, after as many input rounds as it needs.

        Raises MCPError, ProtocolError, or ToolFailed for an error result or too many rounds; the cause is the
        tool's exception.
        """
        if not self._given:
            async with self.lifespan():  # outside a runner
                return await self.call(name, inputs, context)
        IN_RUNNER.set(True)
        restore_caller(context.caller)
        install_round_handler(self._server)
        (lifespan,) = self._given
        first = {key: _without_nothing(answer.to_dict()) for key, answer in context.answers.items()}
        responses, state = first, None
        for rounds_left in reversed(range(_MOST_ROUNDS + 1)):
            result = await self._call_once(name, inputs, context, InputRound(responses, state), lifespan)
            if not isinstance(result, InputRequiredResult):
                return result
            if rounds_left:
                responses, state = {**first, **await _responses(context, result)}, result.request_state
        message = f"{name} asked for input more than {_MOST_ROUNDS} times"
        failure = {"content": [{"type": "text", "text": message}], "isError": True}
        raise ToolFailed(message, failure)

    async def _call_once(
        self, name: str, inputs: dict[str, Any], context: TaskContext, under_way: InputRound, lifespan: Any
    ) -> dict[str, Any] | InputRequiredResult:
        """Raises as `call` does."""
        asked = StoredRequest.of(context.meta)
        dispatch = TaskDispatch(context, asked)
        capabilities = {**asked.capabilities, **_CAPABILITIES}
        connection = Connection.from_envelope(
            _VERSION, asked.client or _CLIENT, capabilities, outbound=dispatch
        )
        connection.session_id = asked.session_id
        meta = {"progressToken": context.task_id, **asked.meta}
        if context.traceparent is not None:
            meta["traceparent"] = context.traceparent  # that of the attempt
            meta.pop("tracestate", None)
        if context.tracestate is not None:
            meta["tracestate"] = context.tracestate
        params = {"name": name, "arguments": inputs, "_meta": meta}
        if under_way.responses:
            params["inputResponses"] = dict(under_way.responses)
        CURRENT_ROUND.set(under_way)
        try:
            result = await serve_one(
                self._server, dispatch, "tools/call", params, connection=connection, lifespan_state=lifespan
            )
        except MCPError:
            raise
        except Exception as error:
            raise _as_the_sdk_answers(error, asked) from error
        if isinstance(under_way.raised, ProtocolError):
            raise under_way.raised
        if under_way.required is not None:
            return under_way.required
        if result.get("isError"):
            raise ToolFailed(_text_of(result) or f"{name} failed", result) from under_way.raised
        return result


class TaskDispatch:
    """The SDK's DispatchContext with the task in place of a client."""

    def __init__(self, context: TaskContext, asked: StoredRequest) -> None:
        self._context = context
        self.transport = TransportContext(kind="backburner", can_send_request=True)
        self.can_send_request = True
        self.request_id: str | int | None = context.task_id
        self.message_metadata: MessageMetadata = ServerMessageMetadata(request_context=asked.http_request())
        self.cancel_requested = anyio.Event()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Turn the request into a question of the task, and wait for its answer."""
        if method not in ASKABLE:
            raise NoBackChannelError(method)
        key = method.partition("/")[0]
        return (await _ask(self._context, {key: (method, params or {})}))[key]

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        said = params or {}
        if method == "notifications/progress":
            await self.progress(said.get("progress", 0), said.get("total"), said.get("message"))
        elif method == "notifications/message":
            stream, line = as_line(said)
            self._context.log(line, said.get("level", "info"), stream=stream)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        self._context.progress(progress, total, message=message)


def _as_the_sdk_answers(error: Exception, asked: StoredRequest) -> ProtocolError:
    """Return the error that the SDK sends for an exception of a handler."""
    known = handler_exception_to_error_data(error)
    if known is not None:
        return ProtocolError(known.code, known.message, known.data)
    return (
        ProtocolError(INTERNAL_ERROR, "Internal server error")
        if asked.modern
        else ProtocolError(0, str(error))
    )


async def _responses(context: TaskContext, required: InputRequiredResult) -> dict[str, Any]:
    """Return the answers to the required input; a tool may only ask to be called again."""
    if not required.input_requests:
        await asyncio.sleep(_CALL_AGAIN_S)
        return {}
    asked = {key: as_dict(request) for key, request in required.input_requests.items()}
    return await _ask(
        context, {key: (each["method"], each.get("params") or {}) for key, each in asked.items()}
    )


async def _ask(
    context: TaskContext, requests: Mapping[str, tuple[str, Mapping[str, Any]]]
) -> dict[str, dict[str, Any]]:
    """Turn client requests into questions of the task, and wait for their results. Raises MCPError."""
    asked = {key: (method, {**params}) for key, (method, params) in requests.items()}
    for _, params in asked.values():
        params.pop("_meta", None)
    replies = await asyncio.to_thread(context.request_all, asked)
    return {key: _result_of(method, replies[key]) for key, (method, _) in asked.items()}


def _result_of(method: str, reply: Mapping[str, Any]) -> dict[str, Any]:
    if method == "elicitation/create":
        return _without_nothing(reply)
    content = reply.get("content") or {}
    if "error" in content:
        raise MCPError(content["error"]["code"], content["error"]["message"])
    return dict(content)


def _without_nothing(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if value is not None}


def _text_of(result: Mapping[str, Any]) -> str:
    blocks = result.get("content") or ()
    return "\n".join(block["text"] for block in blocks if block.get("type") == "text")
