"""A task's questions, put to a client by a request of the server's: as was the way before 2026-07-28."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import mcp_types as types
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.message import ServerMessageMetadata
from pydantic import TypeAdapter, ValidationError

from ..errors import BackburnerError, InvalidAnswer
from ..log_lines import about
from ..service import TaskService, TaskStatus
from ..task import InputRequest
from ..tools import AsksMode

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


async def put(
    question: InputRequest,
    session: ServerSession,
    request_id: types.RequestId | None,
    meta: Mapping[str, Any] | None = None,
    *,
    asks: AsksMode = "client",
) -> dict[str, Any]:
    """Ask the client and give its answer; one that cannot be asked, or fails, is taken to refuse.

    It is asked on the stream of that request, or outside any. Raises NoBackChannelError where there is no
    way to ask; also for a client that cannot be asked, if the tool asks anyone.
    """
    if not session.check_client_capability(_CAPABILITIES[question.method]):
        if asks == "anyone":
            raise NoBackChannelError(question.method)
        return declined(question.method, "the client does not support it")
    params = {**question.params}
    if meta is not None:
        params["_meta"] = dict(meta)
    metadata = None if request_id is None else ServerMessageMetadata(related_request_id=request_id)
    try:
        request = _REQUEST.validate_python({"method": question.method, "params": params})
        result = await session.send_request(request, _RESULTS[question.method], metadata=metadata)
    except NoBackChannelError:
        raise
    except (MCPError, ValidationError) as error:
        return declined(question.method, str(error))
    return result.model_dump(by_alias=True, mode="json", exclude_none=True)


async def give(service: TaskService, status: TaskStatus, answers: Mapping[str, Any]) -> None:
    """Give a task the answers to its open questions; if one does not fit, the client is taken to refuse."""
    try:
        await service.aio.answer_input(status.task_id, answers, owner=status.task.owner)
    except InvalidAnswer as error:
        refused = {q.key: declined(q.method, str(error)) for q in status.questions}
        await service.aio.answer_input(status.task_id, refused, owner=status.task.owner)


class QuestionsOut:
    """The questions of a task that goes on without a request, put to its client as long as they are open.

    Who cannot be asked is not taken to refuse: somebody else may have the answer.
    """

    def __init__(self, service: TaskService, session: ServerSession) -> None:
        self._service = service
        self._session = session
        self._open: Sequence[InputRequest] = ()
        self._asking: asyncio.Task[None] | None = None

    def see(self, status: TaskStatus) -> None:
        """What the task asks now; returns at once."""
        if status.questions == self._open:
            return
        self.take_back()
        self._open = status.questions
        needed = [_CAPABILITIES[question.method] for question in status.questions]
        if needed and all(map(self._session.check_client_capability, needed)):
            self._asking = asyncio.create_task(self._ask(status))

    def take_back(self) -> None:
        """Wait for no answer any more."""
        if self._asking is not None:
            self._asking.cancel()

    async def _ask(self, status: TaskStatus) -> None:
        try:
            answers = {one.key: await put(one, self._session, None) for one in status.questions}
            await give(self._service, status, answers)
        except (NoBackChannelError, BackburnerError) as error:
            words = "The questions of task %s are not answered: %s"
            logger.info(words, status.task_id, error, extra=about(status.task_id))
        except Exception:
            words = "The client of task %s went while it was asked"
            logger.info(words, status.task_id, exc_info=True, extra=about(status.task_id))


def declined(method: str, reason: str) -> dict[str, Any]:
    """The answer that stands for "no": elicitation has a word for it, other requests fail in the tool."""
    if method == "elicitation/create":
        return {"action": "cancel"}
    return {"error": {"code": -32603, "message": reason}}
