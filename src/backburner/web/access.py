"""Access to the web API: the principal, its role, and calls off the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from mcp.server.auth.middleware.auth_context import get_access_token

from .. import errors
from ..app import Backburner
from ..core.task import Caller
from ..errors import BackburnerError
from ..mcp.adapters.servers import discover_tools
from ..mcp.requests import caller_of_request, owner_of_request
from ..mcp.transport.auth import Role, role_of
from ..service.names import whole_owner
from ..store.protocol import Store

logger = logging.getLogger(__name__)

#: Response bodies contain untrusted text: no browser may treat one as a page, no other site may read it.
SAFE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}

#: `Sec-Fetch-Site` of requests from the dashboard's own pages, or typed by a person.
OWN_SITES = ("same-origin", "none")


class TokenRequired(BackburnerError):
    """A valid bearer token is required: `Authorization: Bearer …`. The operator creates one with `backburner token new`."""  # noqa: E501

    code = "token_required"


class NotPermitted(BackburnerError):
    """This token has the role {role}, which may not {what}."""

    code = "not_permitted"


class CrossSite(BackburnerError):
    """Cross-site requests cannot change anything."""

    code = "cross_site"


class NotJson(BackburnerError):
    """Requests that change something need `Content-Type: application/json`."""

    code = "not_json"


class NoSuchPath(BackburnerError):
    """No such path. /api/v1/openapi.json lists all paths."""

    code = "no_such_path"


class NoSuchMethod(BackburnerError):
    """This path does not support {method}."""

    code = "no_such_method"


#: The first matching class counts.
_STATUS: tuple[tuple[type[BackburnerError], int], ...] = (
    (TokenRequired, 401),
    (NotPermitted, 403),
    (CrossSite, 403),
    (NoSuchPath, 404),
    (NoSuchMethod, 405),
    (NotJson, 415),
    (errors.TaskNotFound, 404),
    (errors.ArtifactNotFound, 404),
    (errors.AmbiguousOwner, 409),
    (errors.NotAllowedNow, 409),
    (errors.NotFinished, 409),
    (errors.IdempotencyConflict, 409),
    (errors.TooLarge, 413),
    (errors.InvalidRequest, 400),
    (errors.QueueFull, 429),
    (errors.StoreRefused, 400),
    (errors.StoreError, 503),
    (errors.EngineError, 503),
    (errors.NoTarget, 503),
    (errors.ArtifactStorageError, 503),
)


def status_of(error: BackburnerError) -> int:
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


@dataclass(frozen=True, slots=True)
class Access:
    """The principal of a request and its role. `is_local`: the server asks for no tokens."""

    principal: str
    role: Role
    caller: Caller | None = None
    is_local: bool = False

    @property
    def owner(self) -> str | None:
        """Owner whose tasks are visible; None: all owners."""
        return None if self.role.sees_all else self.principal

    @property
    def is_operator(self) -> bool:
        """True if hosts, processes and masked errors are visible.

        Without tokens, every request comes from the host itself.
        """
        return self.role.sees_all or self.is_local

    @property
    def steers_queues(self) -> bool:
        """True if actions that affect all owners, such as pausing a queue, are allowed."""
        return self.role.operates and self.is_operator

    def selected_owner(self, name: str | None, store: Store) -> str | None:
        """Return the owner to filter by. Raises NotPermitted for a name if only own tasks are visible."""
        if name is None:
            return self.owner
        if not self.role.sees_all:
            raise NotPermitted(role=self.role, what="name an owner: it sees the tasks of one alone")
        return whole_owner(name, store.count_owners())

    def require_operate(self) -> None:
        if not self.role.operates:
            raise NotPermitted(role=self.role, what="change anything")

    def require_operate_all(self, what: str) -> None:
        if not self.steers_queues:
            raise NotPermitted(role=self.role, what=f"{what}, which affects all owners")


def access_of_request(*, tokens: bool) -> Access:
    """Return the access of the current request. Raises TokenRequired if the server requires `tokens`."""
    token = get_access_token()
    if token is None:
        if tokens:
            raise TokenRequired
        return Access(owner_of_request(), Role.OPERATE, is_local=True)
    return Access(owner_of_request(), role_of(token.scopes), caller_of_request())


P = ParamSpec("P")
T = TypeVar("T")


class Blocking:
    """Runs blocking functions on the app's threads. Lists the tools of an attached server first, once."""

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
                await discover_tools(self._app)
            except Exception:
                logger.exception("Listing the server's tools failed")
