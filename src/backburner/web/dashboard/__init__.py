"""The dashboard, `/`: what the tasks do, for people. All its addresses but that are below `/dashboard/`."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from ...app import Backburner
from ...mcp.serving.tokens import Verifier
from .entrance import Entrance
from .pages import HEADERS, Desk, PageEndpoint
from .rendering import static_files
from .sessions import Sessions
from .views import pages


def routes(app: Backburner, sessions: Sessions, verifier: Verifier | None) -> list[BaseRoute]:
    """For the server's HTTP app. Browsers come in with a token, or by a link where none is asked for."""
    desk = Desk(app, sessions, tokens=verifier is not None)
    entrance = Entrance(desk, verifier)
    return [
        Route("/dashboard/static/{name}", endpoint=_static),
        Route("/dashboard/open/{link}", endpoint=entrance.open, methods=["GET"]),
        Route("/dashboard/sign-in", endpoint=entrance.sign_in, methods=["GET", "POST"]),
        Route("/dashboard/sign-out", endpoint=entrance.sign_out, methods=["GET", "POST"]),
        *(Route(page.path, endpoint=PageEndpoint(desk, page)) for page in pages(desk)),
        Route("/dashboard/{rest:path}", endpoint=entrance.nowhere),
        Route("/dashboard", endpoint=_to_the_overview),
    ]


async def _to_the_overview(request: Request) -> Response:
    return RedirectResponse(f"{request.scope.get('root_path', '')}/", 307, HEADERS)


async def _static(request: Request) -> Response:
    found = static_files().get(request.path_params["name"])
    if found is None:
        return Response("There is no such file\n", 404, media_type="text/plain")
    headers = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}
    return Response(found[0], headers=headers, media_type=found[1])
