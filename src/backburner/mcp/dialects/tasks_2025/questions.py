"""Questions that a server asks by requests of its own, kept until somebody answers them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import mcp_types as types
from mcp.client.session import ClientRequestContext, ElicitationFnT

from .wire import related_task

_numbers = itertools.count(1)


@dataclass(frozen=True)
class _Open:
    request: dict[str, Any]
    answer: asyncio.Future[types.ElicitResult]


class Questions:
    """The client's elicitation callback: the user's own one, or else whoever holds the task's handle."""

    def __init__(self, callback: ElicitationFnT | None) -> None:
        self.callback = callback
        #: Told of a task that has a new question.
        self.ring: Callable[[str], None] = lambda task_id: None
        #: The tasks whose handle somebody holds, to answer by it.
        self.attended: set[str] = set()
        self._open: dict[str, dict[str, _Open]] = {}

    async def elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        if self.callback is not None:
            return await self.callback(context, params)
        meta: Mapping[str, Any] = context.meta or {}
        task_id = related_task(meta)
        if task_id is None or task_id not in self.attended:
            return types.ElicitResult(action="cancel")
        key = f"question-{next(_numbers)}"
        shown = params.model_dump(by_alias=True, mode="json", exclude_none=True, exclude={"meta"})
        answer: asyncio.Future[types.ElicitResult] = asyncio.get_running_loop().create_future()
        asked = self._open.setdefault(task_id, {})
        asked[key] = _Open({"method": "elicitation/create", "params": shown}, answer)
        self.ring(task_id)
        try:
            return await answer
        finally:
            asked.pop(key, None)

    def open(self, task_id: str) -> dict[str, dict[str, Any]]:
        return {key: question.request for key, question in self._open.get(task_id, {}).items()}

    def answer(self, task_id: str, answers: Mapping[str, Any]) -> None:
        """Keys that are not open any more are passed over, as `tasks/update` does."""
        asked = self._open.get(task_id, {})
        for key, answer in answers.items():
            if key in asked and not asked[key].answer.done():
                asked[key].answer.set_result(types.ElicitResult.model_validate(answer))
