"""Serves an app over stdio or HTTP until it is interrupted."""

from __future__ import annotations

import errno
import ipaddress
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import anyio

from ...app import Backburner
from ...errors import ConfigError
from ...observability import tracing
from ...observability.logging import say, set_up
from ...settings import HttpSettings
from ..adapters.servers import framework_of
from ..framing import framed_stdio
from .auth import verifier_of
from .guards import EVERYWHERE, AllowedHosts, Host, bounded_protocol


@contextmanager
def until_interrupted() -> Iterator[threading.Event]:
    """Let Ctrl-C end the input, so that one is enough; the event says that it came.

    The server reads stdin in a thread that only the end of input wakes. It therefore reads from a pipe that
    another thread fills and Ctrl-C closes.
    """
    interrupted = threading.Event()
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # another handler is installed
        yield interrupted
        return
    given, (reads, writes), nowhere = os.dup(0), os.pipe(), os.open(os.devnull, os.O_WRONLY)
    os.dup2(reads, 0)
    os.close(reads)

    def end_of_input() -> None:
        os.dup2(nowhere, writes, inheritable=False)  # closing would free the descriptor for reuse

    def pass_on() -> None:
        with suppress(OSError):
            while some := os.read(given, 65536):
                while some:
                    some = some[os.write(writes, some) :]
        end_of_input()

    def interrupt(*_: object) -> None:
        interrupted.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        end_of_input()

    threading.Thread(target=pass_on, daemon=True).start()
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


#: Exit code of a server that could not start, as in uvicorn.
_NOT_STARTED = 3
#: Grace period of open requests after SIGTERM. Tasks continue.
_SHUTDOWN_S = 5


def run_stdio(app: Backburner) -> None:
    """Serve until the client disconnects. Raises what opening the store raises."""
    server = app.mcp_server()
    set_up(app.settings.log)
    tracing.provide()
    try:
        with until_interrupted() as interrupted:
            anyio.run(_serve_stdio, server)
    except KeyboardInterrupt:
        interrupted.set()
    finally:
        app.close()
    if interrupted.is_set():
        sys.exit(130)


async def _serve_stdio(server: Any) -> None:
    framework = framework_of(server)
    inner = framework.lowlevel_of(server)
    async with framework.lifespan(server), framed_stdio() as (reads, writes):
        await inner.run(reads, writes, inner.create_initialization_options())


def run_http(app: Backburner, host: str, port: int, *, log_level: str = "info") -> None:
    """Serve on that address until the process is stopped.

    Raises ConfigError for an address that is in use or requires tokens, and StoreError.
    """
    import uvicorn

    from .http import http_app

    check_bind(app, host)
    check_free(host, port)
    if app.settings.http.dashboard and verifier_of(app) is None:
        app.store.secret()  # it signs the link; an error shows before the server begins
    set_up(app.settings.log)
    tracing.provide()
    _say_names(app, host, port)
    http = app.settings.http
    config = uvicorn.Config(
        http_app(app, host=host),
        host=host,
        port=port,
        log_level=log_level,
        log_config=None,  # uses our logging
        lifespan="on",
        timeout_keep_alive=max(1, int(http.idle_timeout_s)),
        timeout_graceful_shutdown=_SHUTDOWN_S,
    )
    config.load()
    config.http_protocol_class = bounded_protocol(
        config.http_protocol_class, http.max_connections, http.idle_timeout_s
    )
    server = _server(app, config)
    try:
        server.run()
    except KeyboardInterrupt:
        pass  # it has shut down already
    finally:
        app.close()
    if not server.started:
        sys.exit(_NOT_STARTED)


def _server(app: Backburner, config: Any) -> Any:
    """Return a server that prints its addresses once it listens."""
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
    """Return the URLs of MCP."""
    return [f"{address}/mcp" for address in _addresses(http, host, port)]


def _addresses(http: HttpSettings, host: str, port: int) -> list[str]:
    """Return the server's URLs: the public one, or those of the bound address."""
    if http.public_url:
        return [http.public_url.rstrip("/")]
    names = ["127.0.0.1", socket.gethostname()] if host in EVERYWHERE else [host]
    return [f"http://{Host(name, str(port))}" for name in names]


def _of_dashboard(app: Backburner, address: str) -> str:
    """Return the line about the dashboard; without tokens it has a one-time link."""
    if verifier_of(app) is not None:
        return f"The dashboard is at {address}/ for whoever has a token"
    from ...web.dashboard.sessions import one_time_link

    return f"The dashboard opens once with {one_time_link(app.store, address)}"


def _say_names(app: Backburner, host: str, port: int) -> None:
    """Print the accepted host names, unless they are configured."""
    http = app.settings.http
    if is_loopback(host) or http.allowed_hosts or http.public_url:
        return
    say(
        app.settings.log,
        f"{Host(host, str(port))} answers to {AllowedHosts(host, http)}; other Host names get 421. "
        "To add a name, set http.allowed_hosts, as in "
        """BACKBURNER_HTTP__ALLOWED_HOSTS='["lab.example"]', or http.public_url.""",
    )


def check_bind(app: Backburner, host: str) -> None:
    """Raise ConfigError for an address reachable by other hosts without authentication."""
    if is_loopback(host) or verifier_of(app) is not None or app.settings.http.allow_anonymous:
        return
    reason = (
        f"{host} can be reached by other hosts and no tokens are configured; "
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
    """Parse `HOST:PORT`, `:PORT` or `PORT`; the default is loopback. Raises ConfigError."""
    host, _, port = text.rpartition(":")
    try:
        number = int(port)
    except ValueError:
        number = -1
    if not 0 <= number <= 65535:
        raise ConfigError(setting="http", reason=f"{text!r} is not HOST:PORT")
    return host.strip("[]") or "127.0.0.1", number
