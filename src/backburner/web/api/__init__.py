"""The HTTP API, `/api/v1`: tasks and the server, for programs."""

from __future__ import annotations

from itertools import groupby

from starlette.routing import BaseRoute, Route

from ...app import Backburner
from .operation import Endpoint
from .operations import Operations
from .unknown import nowhere

PATH = "/api/v1"
#: What a body may have beside the inputs of a tool.
_BESIDE_INPUTS = 65_536


def routes(app: Backburner, *, tokens: bool) -> list[BaseRoute]:
    """For the server's HTTP app. With `tokens`, nobody comes in without one."""
    operations = sorted(Operations(app, PATH, tokens=tokens).all, key=lambda one: one.path)
    most_bytes = app.settings.limits.max_input_bytes + _BESIDE_INPUTS
    found: list[BaseRoute] = [
        Route(PATH + path, endpoint=Endpoint([*some], tokens=tokens, most_bytes=most_bytes))
        for path, some in groupby(operations, key=lambda one: one.path)
    ]
    return [*found, Route(f"{PATH}/{{rest:path}}", endpoint=nowhere), Route(PATH, endpoint=nowhere)]
