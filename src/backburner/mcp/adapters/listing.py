"""Knowing the tools of an attached server without serving it: no client, and no lifespan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
from mcp.server.connection import Connection
from mcp.server.runner import serve_one
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.message import MessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types.version import LATEST_HANDSHAKE_VERSION

from ...app import Backburner
from .servers import framework_of

_LOOKER = {"name": "backburner", "version": "1"}


async def learn_tools(app: Backburner) -> None:
    """Have the server list its tools, so that those that are slow are known. Raises what it raises."""
    low = framework_of(app.server).lowlevel_of(app.server)
    nobody = _Nobody()
    params: dict[str, Any] | None = {}
    while params is not None:
        connection = Connection.from_envelope(LATEST_HANDSHAKE_VERSION, _LOOKER, {}, outbound=nobody)
        page = await serve_one(low, nobody, "tools/list", params, connection=connection, lifespan_state=None)
        params = {"cursor": page["nextCursor"]} if page.get("nextCursor") else None


class _Nobody:
    """The SDK's DispatchContext, with nobody in the place of a client."""

    def __init__(self) -> None:
        self.transport = TransportContext(kind="backburner", can_send_request=False)
        self.can_send_request = False
        self.request_id: str | int | None = 1
        self.message_metadata: MessageMetadata = None
        self.cancel_requested = anyio.Event()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        raise NoBackChannelError(method)

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None: ...

    async def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None: ...
