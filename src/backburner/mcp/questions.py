"""A task's questions, put to clients that are asked by a request of the server's: before 2026-07-28."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.message import ServerMessageMetadata
from pydantic import TypeAdapter, ValidationError

from ..errors import BackburnerError, InvalidAnswer
from ..service import TaskService
from ..task import InputRequest
from .request import RELATED_TASK

logger = logging.getLogger(__name__)

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


class Asker:
    """Puts the open questions of one task to clients; each question is out at one place at a time.

    A question that was sent outside any request may never have arrived, since nobody may listen
    there: so a request that can carry it takes it over, and the first answer counts.
    """

    def __init__(self, service: TaskService, task_id: str, owner: str) -> None:
        self._service, self._task_id, self._owner = service, task_id, owner
        self._out: dict[str, tuple[asyncio.Task[None], bool]] = {}

    def ask(
        self, questions: list[InputRequest], session: ServerSession, request_id: types.RequestId | None
    ) -> None:
        """Send those questions that are not out yet: on the stream of that request, or outside any."""
        for question in questions:
            asking, on_request = self._out.get(question.key, (None, False))
            if asking is not None and (on_request or request_id is None):
                continue
            if asking is not None:
                asking.cancel()
            task = asyncio.ensure_future(self._ask(question, session, request_id))
            self._out[question.key] = (task, request_id is not None)

    def all_out(self, questions: list[InputRequest]) -> bool:
        return all(question.key in self._out for question in questions)

    def leave(self, *, request: bool) -> None:
        """Stop waiting for answers, on requests' streams or outside them; another may ask again."""
        for key, (asking, on_request) in list(self._out.items()):
            if on_request == request:
                asking.cancel()
                self._out.pop(key, None)

    async def _ask(
        self, question: InputRequest, session: ServerSession, request_id: types.RequestId | None
    ) -> None:
        """Send one question and keep its answer. Where it cannot be sent, it stays open for others."""
        try:
            answer = await put(question, session, request_id, self._task_id)
            await self._service.aio.answer_input(self._task_id, {question.key: answer}, owner=self._owner)
        except InvalidAnswer:
            refused = refusal(question.method, "the client's answer does not fit the question")
            await self._service.aio.answer_input(self._task_id, {question.key: refused}, owner=self._owner)
        except (NoBackChannelError, BackburnerError) as error:
            logger.info("Question %s of task %s is not answered: %s", question.key, self._task_id, error)
        except Exception:
            logger.info("The client of task %s went while it was asked", self._task_id, exc_info=True)
        finally:
            if self._out.get(question.key, (None,))[0] is asyncio.current_task():
                del self._out[question.key]


async def put(
    question: InputRequest, session: ServerSession, request_id: types.RequestId | None, task_id: str | None
) -> dict[str, Any]:
    """Ask the client and give its answer; one that cannot be asked, or fails, is taken to refuse.

    Raises NoBackChannelError where there is no way to ask.
    """
    if not session.check_client_capability(_CAPABILITIES[question.method]):
        return refusal(question.method, "the client does not support it")
    params = {**question.params}
    if task_id is not None:
        params["_meta"] = {RELATED_TASK: {"taskId": task_id}}
    request = _REQUEST.validate_python({"method": question.method, "params": params})
    metadata = None if request_id is None else ServerMessageMetadata(related_request_id=request_id)
    try:
        result = await session.send_request(request, _RESULTS[question.method], metadata=metadata)
    except NoBackChannelError:
        raise
    except (MCPError, ValidationError) as error:
        return refusal(question.method, str(error))
    return result.model_dump(by_alias=True, mode="json", exclude_none=True)


def refusal(method: str, reason: str) -> dict[str, Any]:
    """The answer that stands for "no": elicitation has a word for it, other requests fail in the tool."""
    if method == "elicitation/create":
        return {"action": "cancel"}
    return {"error": {"code": -32603, "message": reason}}
