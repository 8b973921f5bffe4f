"""`Tasks`: Backburner as an extension of `MCPServer` and FastMCP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp.server.extension import Extension

from ...app import Backburner
from ...errors import ConfigError
from .. import sdk
from ..dialects.tasks_2026.wire import EXTENSION

if TYPE_CHECKING:
    from fastmcp.server.extensions import ServerExtension

    class _BothExtensions(Extension, ServerExtension):  # type: ignore[misc]
        """FastMCP asks for a base class of its own, but uses only the methods that `Tasks` has."""

else:
    _BothExtensions = Extension


class Tasks(_BothExtensions):
    """Durable tasks for a server, as with `Backburner.attach`.

    `MCPServer("lab", extensions=[Tasks(slow=["relax"], store="sqlite:///lab.db")])`, or
    `FastMCP("lab").add_extension(Tasks(...))`. The options are those of `Backburner.attach`. `app` is the
    attached app; None until the extension is registered.
    """

    identifier = EXTENSION
    app: Backburner | None = None
    auto_register = False
    _server_ref = None  # FastMCP reads and restores it

    def __init__(
        self,
        slow: str | Sequence[str] | Mapping[str, Mapping[str, Any]] = (),
        *,
        name: str | None = None,
        target: str | None = None,
        config: str | Path | None = None,
        **settings: Any,
    ) -> None:
        self._slow = slow
        self._options: dict[str, Any] = {"name": name, "target": target, "config": config, **settings}
        self._is_on_fastmcp = False

    def settings(self) -> dict[str, Any]:
        """Return what servers announce. `MCPServer` calls this while it registers the extension."""
        server = None if self._is_on_fastmcp else sdk.server_that_registers_extension()
        if server is not None and (self.app is None or self.app.server is not server):
            self._attach(server)
        if self.app is None:
            reason = "pass Tasks(...) to MCPServer(extensions=[...]) or FastMCP.add_extension(...)"
            raise ConfigError(setting="server", reason=reason)
        return {}

    def _bind(self, server: Any) -> None:
        """FastMCP calls this while it registers the extension."""
        self._is_on_fastmcp = True
        self._attach(server)

    def _attach(self, server: Any) -> None:
        if self.app is not None:
            reason = f"this Tasks(...) belongs to {self.app.name} already; make one for each server"
            raise ConfigError(setting="server", reason=reason)
        self.app = Backburner.attach(server, self._slow, **self._options)

    async def intercept_tool_call(self, params: Any, context: Any, call_next: Any) -> Any:
        """Pass the call on: the middleware has taken the calls of slow tools already."""
        return await (call_next() if self._is_on_fastmcp else call_next(context))

    def lifespan(self) -> AbstractAsyncContextManager[None]:
        """Return no lifespan of its own, for FastMCP: the app starts with the server."""
        return nullcontext()

    def _requires_live_resource(self, uri: str) -> bool:
        return False
