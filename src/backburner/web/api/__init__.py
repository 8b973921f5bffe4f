"""The HTTP API at `/api/v1`: tasks and the server, for programs."""

from __future__ import annotations

from starlette.routing import BaseRoute, Route

from ...app import Backburner
from .framework import below, new_api
from .operations import parts_of, server, tasks

PATH = "/api/v1"
#: Size of a request body beside the inputs of a tool.
_BESIDE_INPUTS = 65_536


def routes(app: Backburner, *, tokens: bool) -> list[BaseRoute]:
    """Return routes for the server's HTTP app. With `tokens`, every request needs one."""
    max_bytes = app.settings.limits.max_input_bytes + _BESIDE_INPUTS
    api = new_api(PATH, [tasks, server], tokens=tokens, max_bytes=max_bytes)
    api.state.parts = parts_of(app)
    endpoint = below(PATH, api)
    return [Route(f"{PATH}/{{rest:path}}", endpoint=endpoint), Route(PATH, endpoint=endpoint)]
