"""Questions in the answers to calls, as 2026-07-28 has them: the client calls again, with its answers.

A tool's first questions are asked so before there is a task. A held call asks so when its task asks,
and its state leads the next call back to the same task.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import mcp_types as types
from itsdangerous import BadData, URLSafeSerializer
from mcp.shared.exceptions import MCPError
from mcp_types.jsonrpc import INVALID_PARAMS

from ..answers import check_answers
from ..context import elicitation
from ..errors import InvalidAnswer
from ..service import TaskStatus
from ..task import Action, Answer, InputRequest
from ..tools import ToolSpec
from .access import TaskAccess
from .pages import on_a_card
from .request import RequestContext, arguments_of, declares, is_modern, missing_capability, owner_of_request

_ELICITATION = types.ClientCapabilities(elicitation=types.ElicitationCapability())


def can_be_asked(ctx: RequestContext) -> bool:
    """Whether the client answers questions in the answers to its calls."""
    return is_modern(ctx) and declares(ctx, _ELICITATION)


def input_requests(questions: Sequence[InputRequest]) -> dict[str, Any]:
    """Questions as the requests that the client would have got."""
    return {
        question.key: {"method": question.method, "params": dict(question.params)} for question in questions
    }


class InputRounds:
    """Asks by results, and takes the answers of calls that come again."""

    def __init__(self, access: TaskAccess) -> None:
        self._access = access

    async def ask_first(
        self, ctx: RequestContext, spec: ToolSpec
    ) -> tuple[dict[str, Any] | None, dict[str, Answer]]:
        """What the tool asks before it begins: the result that asks, if it is still to be asked, and answers.

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
            # An answer that is not valid is asked for once more: the call has not begun.
            with contextlib.suppress(InvalidAnswer):
                checked = await run(check_answers, "", asked, given, longest_bytes=limit)
        if all(question.key in checked for question in asked):
            return None, {key: Answer(action, content) for key, (action, content) in checked.items()}
        if not declares(ctx, _ELICITATION):
            if spec.asks == "anyone" or on_a_card(ctx, spec, self._access.settings):  # then the task asks
                return None, {}
            raise missing_capability({"elicitation": {}})
        return {"resultType": "input_required", "inputRequests": input_requests(asked)}, {}

    def ask(self, status: TaskStatus) -> dict[str, Any]:
        """The result that puts a task's open questions; its state leads the next call back to the task."""
        state = self._signer().dumps([status.task_id, status.task.tool_name])
        requests = input_requests(status.questions)
        return {"resultType": "input_required", "inputRequests": requests, "requestState": state}

    async def resumed(self, ctx: RequestContext, spec: ToolSpec) -> TaskStatus:
        """The task of a call that comes again with answers, which the task gets. Raises MCPError."""
        params = ctx.params or {}
        state, given = params.get("requestState"), params.get("inputResponses")
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
        return URLSafeSerializer(self._access.app.store.secret(), salt="backburner.held-call")
