"""The dashboard: the overview at `/`, all other pages below `/dashboard/`."""

from __future__ import annotations

from mcp.server.auth.provider import TokenVerifier
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from ...app import Backburner
from .overview import Overview
from .pages import HEADERS, Dashboard, PageEndpoint, SignIn
from .rendering import static_files
from .sessions import Sessions
from .task import TaskPage
from .tasks import TaskList, ToolPages


def routes(app: Backburner, sessions: Sessions, verifier: TokenVerifier | None) -> list[BaseRoute]:
    """Return routes for the server's HTTP app. Without a verifier, browsers sign in by a one-time link."""
    dashboard = Dashboard(app, sessions, tokens=verifier is not None)
    sign_in = SignIn(dashboard, verifier)
    views = (Overview(dashboard), TaskList(dashboard), TaskPage(dashboard), ToolPages(dashboard))
    return [
        Route("/dashboard/static/{name}", endpoint=_static),
        Route("/dashboard/open/{link}", endpoint=sign_in.open, methods=["GET"]),
        Route("/dashboard/sign-in", endpoint=sign_in.sign_in, methods=["GET", "POST"]),
        Route("/dashboard/sign-out", endpoint=sign_in.sign_out, methods=["GET", "POST"]),
        *(Route(page.path, endpoint=PageEndpoint(dashboard, page)) for view in views for page in view.pages),
        Route("/dashboard/{rest:path}", endpoint=sign_in.not_found),
        Route("/dashboard", endpoint=_to_overview),
    ]


async def _to_overview(request: Request) -> Response:
    return RedirectResponse(f"{request.scope.get('root_path', '')}/", 307, HEADERS)


async def _static(request: Request) -> Response:
    found = static_files().get(request.path_params["name"])
    if found is None:
        return Response("No such file\n", 404, media_type="text/plain")
    headers = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}
    return Response(found[0], headers=headers, media_type=found[1])
