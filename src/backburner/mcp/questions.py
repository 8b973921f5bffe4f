"""Questions of a task: sent as server requests, or in the results of calls."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import mcp_types as types
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.jsonrpc import INVALID_PARAMS
from pydantic import TypeAdapter, ValidationError

from ..core.questions import check_answers
from ..core.task import Action, Answer, InputRequest
from ..errors import BackburnerError, InvalidAnswer
from ..observability.logging import about
from ..service.tasks import TaskService, TaskStatus
from ..tools.context import elicitation
from ..tools.spec import AsksMode, ToolSpec
from .access import TaskAccess
from .requests import (
    RequestContext,
    arguments_of,
    declares,
    is_modern,
    missing_capability,
    owner_of_request,
    uses_card,
)

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


async def ask_client(
    question: InputRequest,
    session: ServerSession,
    request_id: types.RequestId | None,
    meta: Mapping[str, Any] | None = None,
    *,
    asks: AsksMode = "client",
) -> dict[str, Any]:
    """Ask the client and return its answer; one that cannot be asked, or fails, declines.

    The request goes out on the stream of `request_id`, or outside any. Raises NoBackChannelError if there is
    no channel, and for a client without the capability if the tool asks anyone.
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


async def store_answers(service: TaskService, status: TaskStatus, answers: Mapping[str, Any]) -> None:
    """Store the answers to a task's open questions; an invalid answer counts as declined."""
    try:
        await service.aio.answer_input(status.task_id, answers, owner=status.task.owner)
    except InvalidAnswer as error:
        refused = {q.key: declined(q.method, str(error)) for q in status.questions}
        await service.aio.answer_input(status.task_id, refused, owner=status.task.owner)


class QuestionForwarder:
    """Sends a detached task's open questions to its client.

    A client that cannot be asked does not count as declining: another may answer.
    """

    def __init__(self, service: TaskService, session: ServerSession) -> None:
        self._service = service
        self._session = session
        self._open: Sequence[InputRequest] = ()
        self._asking: asyncio.Task[None] | None = None

    def see(self, status: TaskStatus) -> None:
        """Forward the questions of a new status; returns at once."""
        if status.questions == self._open:
            return
        self.take_back()
        self._open = status.questions
        needed = [_CAPABILITIES[question.method] for question in status.questions]
        if needed and all(map(self._session.check_client_capability, needed)):
            self._asking = asyncio.create_task(self._ask(status))

    def take_back(self) -> None:
        """Stop waiting for answers."""
        if self._asking is not None:
            self._asking.cancel()

    async def _ask(self, status: TaskStatus) -> None:
        try:
            answers = {one.key: await ask_client(one, self._session, None) for one in status.questions}
            await store_answers(self._service, status, answers)
        except (NoBackChannelError, BackburnerError) as error:
            words = "Questions of task %s stay unanswered: %s"
            logger.info(words, status.task_id, error, extra=about(status.task_id))
        except Exception:
            words = "The client of task %s disconnected before it answered"
            logger.info(words, status.task_id, exc_info=True, extra=about(status.task_id))


def declined(method: str, reason: str) -> dict[str, Any]:
    """Return the answer for a refusal: elicitation has one, other requests fail in the tool."""
    if method == "elicitation/create":
        return {"action": "cancel"}
    return {"error": {"code": -32603, "message": reason}}


_ELICITATION = types.ClientCapabilities(elicitation=types.ElicitationCapability())


def supports_input_rounds(ctx: RequestContext) -> bool:
    """Return whether the client answers questions in results (2026-07-28 elicitation)."""
    return is_modern(ctx) and declares(ctx, _ELICITATION)


def input_requests(questions: Sequence[InputRequest]) -> dict[str, Any]:
    """Return questions as the client requests that they stand for."""
    return {
        question.key: {"method": question.method, "params": dict(question.params)} for question in questions
    }


class InputRounds:
    """Multi-round calls of 2026-07-28: results that ask, and calls that answer."""

    def __init__(self, access: TaskAccess) -> None:
        self._access = access

    async def ask_first(
        self, ctx: RequestContext, spec: ToolSpec
    ) -> tuple[dict[str, Any] | None, dict[str, Answer]]:
        """Return the result that asks the tool's first questions, if any is open, and the answers given.

        Raises MCPError when the client cannot be asked.
        """
        if not is_modern(ctx):
            return None, {}
        run = self._access.service.aio.run
        questions = await run(spec.questions, arguments_of(ctx))
        asked = [
            InputRequest("", key, 0, "elicitation/create", elicitation(message, schema), 0)
            for key, (message, schema) in questions.items()
        ]
        given = (ctx.params or {}).get("inputResponses")
        limit = self._access.settings.limits.max_input_bytes
        checked: dict[str, tuple[Action, Any]] = {}
        if isinstance(given, Mapping):
            # An invalid answer is asked for again: the call has not begun.
            with contextlib.suppress(InvalidAnswer):
                checked = await run(check_answers, "", asked, given, longest_bytes=limit)
        if all(question.key in checked for question in asked):
            return None, {key: Answer(action, content) for key, (action, content) in checked.items()}
        if not declares(ctx, _ELICITATION):
            if spec.asks == "anyone" or uses_card(ctx, spec, self._access.settings):  # then the task asks
                return None, {}
            raise missing_capability({"elicitation": {}})
        return {"resultType": "input_required", "inputRequests": input_requests(asked)}, {}

    def ask(self, status: TaskStatus) -> dict[str, Any]:
        """Return the result that asks a task's questions; `requestState` leads the next call back to the
        task.
        """
        state = self._signer().dumps([status.task_id, status.task.tool_name])
        requests = input_requests(status.questions)
        return {"resultType": "input_required", "inputRequests": requests, "requestState": state}

    async def resume(self, ctx: RequestContext, spec: ToolSpec) -> TaskStatus:
        """Store the answers of a repeated call, and return its task. Raises MCPError."""
        params = ctx.params or {}
        state, given = params.get("requestState"), params.get("inputResponses")
        from itsdangerous import BadData

        try:
            task_id, tool_name = self._signer().loads(state)
        except (BadData, TypeError, ValueError):
            raise MCPError(INVALID_PARAMS, "Invalid or expired requestState") from None
        if tool_name != spec.name:
            raise MCPError(INVALID_PARAMS, "Invalid or expired requestState")
        status = await self._access.status(task_id)
        if isinstance(given, Mapping) and given:
            await self._access.service.aio.answer_input(task_id, given, owner=owner_of_request())
            status = await self._access.status(task_id)
        return status

    def _signer(self) -> Any:
        from itsdangerous import URLSafeSerializer

        return URLSafeSerializer(self._access.app.store.secret(), salt="backburner.held-call")
