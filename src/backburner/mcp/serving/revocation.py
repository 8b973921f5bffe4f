"""Ends requests that are still being answered when their token is revoked or their browser signs out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .tokens import Verifier

logger = logging.getLogger(__name__)

#: A request that takes longer is checked so often.
_EVERY_S = 3.0

#: Return whether a request that was let in would be let in now.
Check = Callable[[Scope], Awaitable[bool]]


def token_check(verifier: Verifier) -> Check:
    """Return a check of the bearer token: it is known, and has the same owner and scopes as before."""

    async def holds(scope: Scope) -> bool:
        user = scope.get("user")
        if not isinstance(user, AuthenticatedUser):
            return True
        before = user.access_token
        now = await verifier.verify_token(before.token)
        return now is not None and (now.client_id, now.scopes) == (before.client_id, before.scopes)

    return holds


class Revocation:
    """Ends a stream or a held call within seconds after one of the checks fails."""

    def __init__(self, app: ASGIApp, checks: list[Check]) -> None:
        self._app, self._checks = app, checks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_begun = is_ended = False

        async def note_and_send(message: Message) -> None:
            nonlocal is_begun, is_ended
            is_begun = True
            is_ended = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        watching: asyncio.Task[None] | None = None
        try:
            async with asyncio.timeout(None) as until:

                def begin() -> None:
                    nonlocal watching
                    watching = asyncio.ensure_future(self._watch(scope, until))

                later = asyncio.get_running_loop().call_later(_EVERY_S, begin)
                try:
                    await self._app(scope, receive, note_and_send)
                finally:
                    later.cancel()
                    if watching is not None:
                        watching.cancel()
        except TimeoutError:
            if not until.expired():
                raise
            if not is_begun:
                refusal = PlainTextResponse("This token or session is not valid any more\n", 401)
                await refusal(scope, receive, send)
            elif not is_ended:
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _watch(self, scope: Scope, until: asyncio.Timeout) -> None:
        while await self._holds(scope):  # noqa: ASYNC110
            await asyncio.sleep(_EVERY_S)
        with contextlib.suppress(RuntimeError):  # the request has ended meanwhile
            until.reschedule(0)

    async def _holds(self, scope: Scope) -> bool:
        try:
            return all([await check(scope) for check in self._checks])
        except Exception:
            logger.warning("A token or session could not be checked again", exc_info=True)
            return True
