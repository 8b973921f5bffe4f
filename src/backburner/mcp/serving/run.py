"""Serving an app: over stdio, or over HTTP on a port of its own."""

from __future__ import annotations

import errno
import ipaddress
import socket
import sys
from typing import Any

import anyio

from ... import tracing
from ...app import Backburner
from ...config import HttpSettings
from ...errors import ConfigError
from ...log_lines import say, set_up
from ..adapters.servers import framework_of
from ..content_length import FRAMINGS, Framing
from .connections import Connections
from .framing import lsp_stdio
from .hosts import EVERYWHERE, Host, Hosts
from .interrupts import until_interrupted
from .tokens import verifier_of

#: The exit code of a server that could not begin, as Uvicorn itself has it.
_NOT_STARTED = 3
#: After SIGTERM, requests that are being answered have so many seconds to end. Tasks go on.
_SHUTDOWN_S = 5


def run_stdio(app: Backburner, framing: Framing = "newline") -> None:
    """Serve until the client goes. Raises ConfigError, and what opening the store raises."""
    if framing not in FRAMINGS:
        raise ConfigError(setting="framing", reason=f"{framing!r} is not one of {', '.join(FRAMINGS)}")
    server = app.mcp_server()
    set_up(app.settings.log)
    tracing.provide()
    try:
        with until_interrupted() as interrupted:
            anyio.run(_serve_stdio, server, framing)
    except KeyboardInterrupt:
        interrupted.set()
    finally:
        app.close()
    if interrupted.is_set():
        sys.exit(130)


async def _serve_stdio(server: Any, framing: Framing) -> None:
    framework = framework_of(server)
    if framing == "newline":
        await framework.run_stdio(server)
        return
    inner = framework.lowlevel_of(server)
    async with framework.living(server), lsp_stdio() as (reads, writes):
        await inner.run(reads, writes, inner.create_initialization_options())


def run_http(app: Backburner, host: str, port: int, *, log_level: str = "info") -> None:
    """Serve on that address until the process is told to stop.

    Raises ConfigError for an address that is in use or needs tokens, and StoreError for a store that the
    dashboard's link needs.
    """
    import uvicorn
    from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

    from .http import http_app

    check_bind(app, host)
    check_free(host, port)
    if app.settings.http.dashboard and verifier_of(app) is None:
        app.store.secret()  # it signs the link; an error shows before the server begins
    set_up(app.settings.log)
    tracing.provide()
    _say_names(app, host, port)
    bounds = Connections(app.settings.http.max_connections, app.settings.http.idle_timeout_s)
    web = ProxyHeadersMiddleware(http_app(app, host=host))  # type: ignore[arg-type]
    config = uvicorn.Config(
        bounds.counting(web),  # type: ignore[arg-type]
        proxy_headers=False,  # as above, within the counting
        host=host,
        port=port,
        log_level=log_level,
        log_config=None,  # its records are lines like ours
        lifespan="on",
        timeout_keep_alive=max(1, int(app.settings.http.idle_timeout_s)),
        timeout_graceful_shutdown=_SHUTDOWN_S,
    )
    config.load()
    config.http_protocol_class = bounds.bounding(config.http_protocol_class)
    server = _server(app, config)
    try:
        server.run()
    except KeyboardInterrupt:
        pass  # it has ended in order before it said so
    finally:
        app.close()
    if not server.started:
        sys.exit(_NOT_STARTED)


def _server(app: Backburner, config: Any) -> Any:
    """A server that says, when it listens, at which address a client finds it."""
    import uvicorn

    class Telling(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            if self.started:
                port = self.servers[0].sockets[0].getsockname()[1]
                addresses = " or ".join(addresses_for_clients(app.settings.http, config.host, port))
                say(app.settings.log, f"MCP is at {addresses}")
                if app.settings.http.dashboard:
                    first = _addresses(app.settings.http, config.host, port)[0]
                    say(app.settings.log, _of_dashboard(app, first))

    return Telling(config)


def addresses_for_clients(http: HttpSettings, host: str, port: int) -> list[str]:
    """Where MCP is for clients."""
    return [f"{address}/mcp" for address in _addresses(http, host, port)]


def _addresses(http: HttpSettings, host: str, port: int) -> list[str]:
    """Where the server is: as the operator says, else by the bound address and this machine's name."""
    if http.public_url:
        return [http.public_url.rstrip("/")]
    names = ["127.0.0.1", socket.gethostname()] if host in EVERYWHERE else [host]
    return [f"http://{Host(name, str(port))}" for name in names]


def _of_dashboard(app: Backburner, address: str) -> str:
    """Where the dashboard is. Where nobody needs a token, by a link that opens it once."""
    if verifier_of(app) is not None:
        return f"The dashboard is at {address}/ for whoever has a token"
    from ...web.dashboard.sessions import one_time_link  # it is above us, and on the same port

    return f"The dashboard opens once with {one_time_link(app.store, address)}"


def _say_names(app: Backburner, host: str, port: int) -> None:
    """Say which names are answered, where others can come in and nobody has said by which."""
    http = app.settings.http
    if is_loopback(host) or http.allowed_hosts or http.public_url:
        return
    say(
        app.settings.log,
        f"{Host(host, str(port))} answers to {Hosts(host, http)}; other Host names get 421. "
        "To add a name, set http.allowed_hosts, as in "
        """BACKBURNER_HTTP__ALLOWED_HOSTS='["lab.example"]', or http.public_url.""",
    )


def check_bind(app: Backburner, host: str) -> None:
    """Raises ConfigError for an address that others can reach when nobody has to say who they are."""
    if is_loopback(host) or verifier_of(app) is not None or app.settings.http.allow_anonymous:
        return
    reason = (
        f"{host} can be reached by others and no tokens are configured, so anybody could run the tools; "
        "make a token with `backburner token new`, set http.auth.tokens or http.auth.jwks, listen on "
        "127.0.0.1, or allow it with --allow-anonymous"
    )
    raise ConfigError(setting="http", reason=reason)


def check_free(host: str, port: int) -> None:
    """Raise ConfigError for an address on which this process cannot listen."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        address = Host(host, str(port))
        advice = {
            errno.EADDRINUSE: f"another program listens on {address}; end it, or choose another port",
            errno.EACCES: f"only root may listen on {address}; choose a port from 1024 on",
            errno.EADDRNOTAVAIL: f"{host} is no address of this machine; listen on 127.0.0.1, or on 0.0.0.0",
        }
        reason = advice.get(error.errno or 0, f"{address} cannot be listened on: {error}")
        raise ConfigError(setting="http", reason=reason) from None


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def split_address(text: str) -> tuple[str, int]:
    """`HOST:PORT`, `:PORT` or `PORT`, on loopback where no host is named. Raises ConfigError."""
    host, _, port = text.rpartition(":")
    try:
        number = int(port)
    except ValueError:
        number = -1
    if not 0 <= number <= 65535:
        raise ConfigError(setting="http", reason=f"{text!r} is not HOST:PORT")
    return host.strip("[]") or "127.0.0.1", number
