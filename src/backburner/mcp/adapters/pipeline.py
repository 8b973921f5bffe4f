"""Running a call of an attached server's own tool in a runner, through the server's own pipeline.

The tool finds the context that it knows. What it says there reaches the task: progress, log
messages, and the requests that it makes of the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
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
from mcp_types.version import LATEST_HANDSHAKE_VERSION

from ...answers import ASKABLE
from ...context import TaskContext
from ...errors import ProtocolError, ToolFailed
from ..kept_request import KeptRequest
from ..log_messages import as_line
from ..middleware import IN_RUNNER
from ..request import as_dict, become
from .tool_round import ROUND, Round, listen_to_tools

#: The revision that a tool in a runner sees: the last one at which a tool may ask its client directly.
_VERSION = LATEST_HANDSHAKE_VERSION
_CLIENT = {"name": "backburner", "version": "1"}
_CAPABILITIES: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}

#: So often a tool may ask for input and be called again, as with other clients of the SDK.
_MOST_ROUNDS = 10
#: So long after it asked for nothing but to be called again, it is.
_CALL_AGAIN_S = 0.25


class Pipeline:
    """Calls an attached server's tools, within its lifespan."""

    def __init__(self, server: Server[Any]) -> None:
        self._server = server
        self._given: list[Any] = []  # what the lifespan that is open has given

    def tool(self, name: str) -> Callable[[dict[str, Any], TaskContext], Awaitable[dict[str, Any]]]:
        """The `run` of a ToolSpec for the server's tool of that name."""

        async def run(inputs: dict[str, Any], context: TaskContext) -> dict[str, Any]:
            return await self.call(name, inputs, context)

        return run

    @asynccontextmanager
    async def living(self) -> AsyncIterator[None]:
        """The server's lifespan. A runner enters it once, and its tasks share what it gives."""
        IN_RUNNER.set(True)
        async with self._server.lifespan(self._server) as given:
            self._given.append(given)
            try:
                yield
            finally:
                self._given.remove(given)

    async def call(self, name: str, inputs: dict[str, Any], context: TaskContext) -> dict[str, Any]:
        """The tool's `CallToolResult`, after as many rounds of questions as it needs.

        Raises MCPError or ProtocolError, or ToolFailed when the result is an error, or the rounds are too
        many. The cause of each is what the tool raised.
        """
        if not self._given:
            async with self.living():  # outside a runner, where nobody has entered it
                return await self.call(name, inputs, context)
        IN_RUNNER.set(True)
        become(context.caller)
        listen_to_tools(self._server)
        (lifespan,) = self._given
        first = {key: _without_nothing(answer.to_dict()) for key, answer in context.answers.items()}
        responses, state = first, None
        for rounds_left in reversed(range(_MOST_ROUNDS + 1)):
            result = await self._call_once(name, inputs, context, Round(responses, state), lifespan)
            if not isinstance(result, InputRequiredResult):
                return result
            if rounds_left:
                responses, state = {**first, **await _responses(context, result)}, result.request_state
        message = f"{name} has asked for input more than {_MOST_ROUNDS} times, and still asks"
        failure = {"content": [{"type": "text", "text": message}], "isError": True}
        raise ToolFailed(message, failure)

    async def _call_once(
        self, name: str, inputs: dict[str, Any], context: TaskContext, under_way: Round, lifespan: Any
    ) -> dict[str, Any] | InputRequiredResult:
        """Raises as `call` does."""
        asked = KeptRequest.of(context.meta)
        dispatch = TaskDispatch(context, asked)
        capabilities = {**asked.capabilities, **_CAPABILITIES}
        connection = Connection.from_envelope(
            _VERSION, asked.client or _CLIENT, capabilities, outbound=dispatch
        )
        connection.session_id = asked.session_id
        meta = {"progressToken": context.task_id, **asked.meta}
        if context.traceparent is not None:
            meta["traceparent"] = context.traceparent  # the attempt's own, with what is noted beside it
            meta.pop("tracestate", None)
        if context.tracestate is not None:
            meta["tracestate"] = context.tracestate
        params = {"name": name, "arguments": inputs, "_meta": meta}
        if under_way.responses:
            params["inputResponses"] = dict(under_way.responses)
        ROUND.set(under_way)
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
    """The SDK's DispatchContext, with the task in the place of a client."""

    def __init__(self, context: TaskContext, asked: KeptRequest) -> None:
        self._context = context
        self.transport = TransportContext(kind="backburner", can_send_request=True)
        self.can_send_request = True
        self.request_id: str | int | None = context.task_id
        self.message_metadata: MessageMetadata = ServerMessageMetadata(request_context=asked.http_request())
        self.cancel_requested = anyio.Event()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Make the request a question of the task, and wait for its answer."""
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


def _as_the_sdk_answers(error: Exception, asked: KeptRequest) -> ProtocolError:
    """What a client of the same era is told of an exception that a handler of tools lets out."""
    known = handler_exception_to_error_data(error)
    if known is not None:
        return ProtocolError(known.code, known.message, known.data)
    return (
        ProtocolError(INTERNAL_ERROR, "Internal server error")
        if asked.modern
        else ProtocolError(0, str(error))
    )


async def _responses(context: TaskContext, required: InputRequiredResult) -> dict[str, Any]:
    """What the client says to what is required of it. A tool may want no more than to be called again."""
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
    """Make requests of a client questions of the task, and wait for their results. Raises MCPError."""
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
