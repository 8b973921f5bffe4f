"""A client's own callbacks (elicitation, sampling, roots), asked in place of a server's requests."""

from __future__ import annotations

from typing import Any

import mcp_types as types
from mcp.client.session import ClientRequestContext, ClientSession
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter

_INPUT_REQUEST: TypeAdapter[types.InputRequest] = TypeAdapter(types.InputRequest)


async def answer_by_callbacks(session: ClientSession, questions: dict[str, Any]) -> dict[str, Any]:
    """What the session's callbacks answer to requests, by their keys. Raises MCPError."""
    answers = {}
    for key, question in questions.items():
        request = _INPUT_REQUEST.validate_python(question)
        context = ClientRequestContext(session=session, request_id=key)
        answer = await session.dispatch_input_request(context, request)
        if isinstance(answer, types.ErrorData):
            raise MCPError.from_error_data(answer)
        answers[key] = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
    return answers
