"""Coming in: by a link that works once where nobody needs a token, else with a token. And going out."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ...mcp.serving.tokens import Verifier
from ..refusals import TokenRequired
from .pages import HEADERS, Desk
from .sessions import LONGEST_TOKEN

_LONGEST_FORM = 16_384
#: What a browser says of a form on a page of ours.
_OWN_SITES = ("same-origin", "none")


class Entrance:
    def __init__(self, desk: Desk, verifier: Verifier | None) -> None:
        self._desk, self._verifier = desk, verifier

    async def open(self, request: Request) -> Response:
        """A link that works once. A look ahead of some program (HEAD) does not use it up."""
        if self._desk.tokens or request.method != "GET":
            return self._page(request, 404)
        if not await self._desk.blocking.run(self._desk.sessions.open, request.path_params["link"]):
            return self._page(request, 410, used=True)
        return await self._begun(request, None, "/")

    async def sign_in(self, request: Request) -> Response:
        if request.method != "POST":
            return self._page(request)
        if request.headers.get("sec-fetch-site", "none") not in _OWN_SITES or self._verifier is None:
            return self._page(request, 403)
        form = parse_qs((await _body(request)).decode("utf-8", "replace"))
        token = (form.get("token") or [""])[0].strip()
        if not token or len(token) > LONGEST_TOKEN or await self._verifier.verify_token(token) is None:
            return self._page(request, 403, refused=True)
        return await self._begun(request, token, (form.get("next") or ["/"])[0])

    async def sign_out(self, request: Request) -> Response:
        response = RedirectResponse(f"{_root(request)}/dashboard/sign-in", 303, HEADERS)
        if request.method == "POST" and request.headers.get("sec-fetch-site", "none") in _OWN_SITES:
            await self._desk.blocking.run(self._desk.sessions.end, request, response)
        return response

    def _page(self, request: Request, status: int = 200, **values: Any) -> Response:
        wanted = request.query_params.get("next", "/")
        shown = {"next": wanted, "used": False, "refused": False, "address": str(request.base_url), **values}
        return self._desk.answer("sign_in.html", request, status, **shown)

    async def _begun(self, request: Request, token: str | None, wanted: str) -> Response:
        response = RedirectResponse(_root(request) + _within(wanted), 303, HEADERS)
        await self._desk.blocking.run(self._desk.sessions.begin, request, response, token)
        return response

    async def nowhere(self, request: Request) -> Response:
        """An address of the dashboard that there is not."""
        try:
            access = await self._desk.access(request)
        except TokenRequired:
            return self._desk.sign_in(request)
        return self._desk.answer("error.html", request, 404, error="There is no such page.", access=access)


def _root(request: Request) -> str:
    return str(request.scope.get("root_path", ""))


def _within(wanted: str) -> str:
    """A page of ours to go to; never a page of another server."""
    ours = wanted.startswith("/") and wanted[1:2] not in ("/", "\\") and wanted.isprintable()
    return wanted if ours else "/"


async def _body(request: Request) -> bytes:
    read = bytearray()
    async for chunk in request.stream():
        read += chunk
        if len(read) > _LONGEST_FORM:
            return b""
    return bytes(read)
