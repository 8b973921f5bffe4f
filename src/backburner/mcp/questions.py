"""A task's questions, put to a client by a request of the server's: as was the way before 2026-07-28."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.message import ServerMessageMetadata
from pydantic import TypeAdapter, ValidationError

from ..task import InputRequest

_REQUEST: TypeAdapter[Any] = TypeAdapter(types.InputRequest)
_RESULTS: Mapping[str, type[types.Result]] = {
    "elicitation/create": types.ElicitResult,
    "sampling/createMessage": types.CreateMessageResult,
    "roots/list": types.ListRootsResult,
}
_CAPABILITIES: Mapping[str, types.ClientCapabilities] = {
    "elicitation/create": types.ClientCapabilities(elicitation=types.ElicitationCapability()),
    "sampling/createMessage": types.ClientCapabilities(sampling=types.SamplingCapability()),
    "roots/list": types.ClientCapabilities(roots=types.RootsCapability()),
}


async def put(
    question: InputRequest,
    session: ServerSession,
    request_id: types.RequestId | None,
    meta: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Ask the client and give its answer; one that cannot be asked, or fails, is taken to refuse.

    It is asked on the stream of that request, or outside any. Raises NoBackChannelError where there is no
    way to ask.
    """
    if not session.check_client_capability(_CAPABILITIES[question.method]):
        return declined(question.method, "the client does not support it")
    params = {**question.params}
    if meta is not None:
        params["_meta"] = dict(meta)
    request = _REQUEST.validate_python({"method": question.method, "params": params})
    metadata = None if request_id is None else ServerMessageMetadata(related_request_id=request_id)
    try:
        result = await session.send_request(request, _RESULTS[question.method], metadata=metadata)
    except NoBackChannelError:
        raise
    except (MCPError, ValidationError) as error:
        return declined(question.method, str(error))
    return result.model_dump(by_alias=True, mode="json", exclude_none=True)


def declined(method: str, reason: str) -> dict[str, Any]:
    """The answer that stands for "no": elicitation has a word for it, other requests fail in the tool."""
    if method == "elicitation/create":
        return {"action": "cancel"}
    return {"error": {"code": -32603, "message": reason}}
