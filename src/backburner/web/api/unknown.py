"""The answer where there is nothing."""

from __future__ import annotations

from starlette.types import Receive, Scope, Send

from ..refusals import NoSuchPath
from .problems import problem


class _Nowhere:
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await problem(NoSuchPath())(scope, receive, send)


nowhere = _Nowhere()
