"""What blocks, off the event loop, and not before the tools are known."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ..app import Backburner
from ..mcp.adapters.listing import learn_tools

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class Blocking:
    """Runs functions of an app on its threads. A server that is attached is asked for its tools once."""

    def __init__(self, app: Backburner) -> None:
        self._app = app
        self._learned: asyncio.Future[None] | None = None

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._learned is None:
            self._learned = asyncio.ensure_future(self._learn())
        await asyncio.shield(self._learned)
        return await self._app.service.aio.run(function, *args, **kwargs)

    async def _learn(self) -> None:
        if self._app.server is not None:
            try:
                await learn_tools(self._app)
            except Exception:
                logger.exception("The server's tools could not be listed")
