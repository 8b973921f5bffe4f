"""No task at all: the result was there at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar

import mcp_types as types

from ...client_errors import NotOffered
from ..client_dialect import Bell
from ..updates import Update


class Inline:
    """A conversation about a call that is over."""

    name: ClassVar[str] = "inline"

    def __init__(self, result: types.CallToolResult) -> None:
        self._result = result

    async def read(self, task_id: str) -> Update:
        return Update(task_id, "completed")

    async def result(self, task_id: str) -> types.CallToolResult:
        return self._result

    async def cancel(self, task_id: str) -> None:
        return

    async def answer(self, task_id: str, answers: Mapping[str, Any]) -> None:
        raise NotOffered(what="questions", task_id=task_id)

    @contextlib.asynccontextmanager
    async def listening(self, task_id: str) -> AsyncIterator[Bell]:
        yield Bell(asyncio.Event())
