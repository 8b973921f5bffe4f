"""A client connection to an MCP server that reconnects when it breaks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import shlex
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import anyio
import mcp_types as types
from mcp.client import Client
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types.jsonrpc import CONNECTION_CLOSED, INVALID_REQUEST
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ..errors import ConfigError, ConnectionLost, NotAuthorized
from ..version import VERSION
from . import sdk
from .framing import ENCODING, FRAMINGS, Framing

logger = logging.getLogger(__name__)

_CONNECT_S = 30.0
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.1, 5.0

T = TypeVar("T")

#: Gets the reason for a 401 or 403 response.
OnRefused = Callable[[str], None]
#: Makes the SDK client of one connection, with its callbacks.
MakeClient = Callable[[sdk.OnNotification, OnRefused], Client]


def client_factory(
    target: Any,
    token: str | None = None,
    *,
    framing: Framing = "newline",
    **options: Any,
) -> MakeClient:
    """Return a function that makes a client of `target` for each connection: SDK clients connect once.

    `target` is a URL, a command (a list, or text as in a shell), stdio parameters, a server in this process,
    or an app. Raises ConfigError for an unknown framing, or one for another transport.
    """
    if isinstance(target, str) and not target.startswith(("http://", "https://")):
        target = shlex.split(target)
    if isinstance(target, Sequence) and not isinstance(target, str):
        # With the full environment, as in a shell; the SDK alone passes little of it.
        target = StdioServerParameters(command=target[0], args=list(target[1:]), env=dict(os.environ))
    if hasattr(target, "mcp_server"):
        target = target.mcp_server()
    if sdk.is_fastmcp(target):
        target = sdk.server_in_fastmcp(target)
    target = _framed(target, framing)
    options.setdefault("client_info", types.Implementation(name="backburner-client", version=VERSION))

    def make(heard: sdk.OnNotification, refused: OnRefused) -> Client:
        server = _http(target, token, refused) if isinstance(target, str) else target
        return sdk.intercept_notifications(Client(server, cache=None, **options), heard)

    return make


def _framed(target: Any, framing: Framing) -> Any:
    if framing == "newline":
        return target
    if framing not in FRAMINGS:
        reason = f"{framing!r} is not one of {', '.join(FRAMINGS)}"
    elif not isinstance(target, StdioServerParameters):
        reason = f"{framing!r} is for servers that are started by a command"
    else:
        return target.model_copy(update={"encoding": ENCODING})
    raise ConfigError(setting="framing", reason=reason)


@contextlib.asynccontextmanager
async def _http(url: str, token: str | None, refused: OnRefused) -> AsyncIterator[Any]:
    import httpx2

    async def look(response: httpx2.Response) -> None:
        """Report the status, which the SDK does not tell its caller."""
        if response.request.method == "POST" and response.status_code in (401, 403):
            given = "no token was given" if token is None else "the token is wrong, or not valid any more"
            refused(f"{response.status_code} {response.reason_phrase}; {given}")

    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    # No read timeout: a held call or subscription may be silent for long.
    timeout = httpx2.Timeout(30, read=None)
    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout, event_hooks={"response": [look]}) as http,
        streamable_http_client(url, http_client=http, **sdk.unlimited_events()) as streams,
    ):
        yield streams


class Link:
    """One connection, in its own task, which the SDK cancels when the connection breaks."""

    def __init__(self, make: MakeClient, heard: sdk.OnNotification, server: str) -> None:
        self._client = make(heard, self._refused)
        self._server = server
        self._refusal: str | None = None
        self._over = asyncio.Event()
        self._opened = asyncio.Event()
        self._failure = "the connection ended"
        self.ended = asyncio.ensure_future(self._live())
        self.tools: dict[str, dict[str, Any]] | None = None

    async def _live(self) -> None:
        try:
            async with self._client:
                self._opened.set()
                await self._over.wait()
        except (Exception, asyncio.CancelledError) as error:
            self._failure = _reason(error)
            logger.debug("A connection ended: %s", self._failure)

    def _refused(self, reason: str) -> None:
        self._refusal = reason

    def _raise_refusal(self) -> None:
        """Raise NotAuthorized if the server has refused the last request."""
        reason, self._refusal = self._refusal, None
        if reason is not None:
            raise NotAuthorized(server=self._server, reason=reason)

    async def open(self) -> None:
        """Wait until it is connected. Raises NotAuthorized or ConnectionError."""
        opened = asyncio.ensure_future(self._opened.wait())
        try:
            waiting = {opened, self.ended}
            await asyncio.wait(waiting, timeout=_CONNECT_S, return_when=asyncio.FIRST_COMPLETED)
            if self.ended.done():
                self._raise_refusal()
                raise ConnectionError(self._failure)
            if not opened.done():
                raise ConnectionError(f"no answer within {_CONNECT_S:g} s")
        except BaseException:
            self.ended.cancel()
            raise
        finally:
            opened.cancel()

    @property
    def alive(self) -> bool:
        return not self._over.is_set() and not self.ended.done()

    @property
    def session(self) -> ClientSession:
        return self._client.session

    @property
    def modern(self) -> bool:
        return self._client.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def capabilities(self) -> dict[str, Any]:
        """Capabilities of the server."""
        return self._client.server_capabilities.model_dump(by_alias=True, exclude_none=True)

    def end(self) -> None:
        self._over.set()

    async def request(self, method: str, params: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        """Send a request and return its raw result; options are those of `sdk.raw_request`.

        Raises MCPError, NotAuthorized, and ConnectionError when the connection breaks.
        """
        if not self.alive:
            raise ConnectionError(self._failure)
        return await self.guarded(sdk.raw_request(self.session, method, params, **options))

    async def guarded(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work` on the session. Raises ConnectionError when the connection breaks."""
        sent = asyncio.ensure_future(work)
        try:
            await asyncio.wait({sent, self.ended}, return_when=asyncio.FIRST_COMPLETED)
            if not sent.done() or sent.cancelled():
                raise ConnectionError(self._failure)
            return sent.result()
        except MCPError as error:
            self._raise_refusal()
            if _is_loss(error):
                raise ConnectionError(str(error)) from error
            raise
        except (anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            raise ConnectionError(_reason(error)) from error
        finally:
            sent.cancel()


class Connection:
    """A server, reached over whichever connection is current.

    The first connection must succeed. Later ones are retried with growing delays for up to `reconnect_s`
    (None for ever).
    """

    def __init__(
        self,
        make: MakeClient,
        server: str,
        *,
        heard: Callable[[str, Mapping[str, Any]], str | None],
        reconnect_s: float | None = 300.0,
    ) -> None:
        """`heard` gets method and parameters of each notification, and returns the task that it names."""
        sdk.check_client_parts()
        self._make = make
        self._whose = heard
        self.server = server
        self._reconnect_s = reconnect_s
        self._lock = asyncio.Lock()
        self._link: Link | None = None
        self._ending: set[asyncio.Future[None]] = set()
        self._bells: dict[str, set[asyncio.Event]] = {}

    async def close(self) -> None:
        if self._link is not None:
            self._link.end()
            self._ending.add(self._link.ended)
        await asyncio.gather(*self._ending, return_exceptions=True)

    async def link(self) -> Link:
        """Return a live connection. Raises ConnectionLost, or its subclass NotAuthorized at once."""
        async with self._lock:
            if self._link is None:
                try:
                    self._link = await self._connected()
                except ConnectionError as error:
                    raise ConnectionLost(server=self.server, reason=error) from error
            elif not self._link.alive:
                self._link.end()
                self._ending.add(self._link.ended)
                self._link.ended.add_done_callback(self._ending.discard)
                self._link = await self._reconnected()
            return self._link

    async def _connected(self) -> Link:
        link = Link(self._make, self._heard, self.server)
        await link.open()
        return link

    async def _reconnected(self) -> Link:
        delay_s, reason = _FIRST_DELAY_S, ""
        try:
            async with asyncio.timeout(self._reconnect_s):
                while True:
                    try:
                        return await self._connected()
                    except ConnectionError as error:
                        reason = str(error)
                        logger.debug("%s cannot be reached yet: %s", self.server, reason)
                    await asyncio.sleep(delay_s * random.uniform(0.5, 1))
                    delay_s = min(2 * delay_s, _LONGEST_DELAY_S)
        except TimeoutError:
            raise ConnectionLost(server=self.server, reason=reason or "no answer") from None

    async def request(self, method: str, params: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        """Send an idempotent request, again on each new connection until it is answered."""
        return await self.until_answered(lambda link: link.request(method, params, **options))

    async def tools(self, *, fresh: bool = False) -> dict[str, dict[str, Any]]:
        """Return the server's tools by name; listed once per connection unless `fresh`."""
        link = await self.link()
        if fresh or link.tools is None:
            link.tools = await self.until_answered(_list_tools)
        return link.tools

    async def until_answered(self, work: Callable[[Link], Awaitable[T]]) -> T:
        """Run `work` on one connection after another while it raises ConnectionError.

        Raises ConnectionLost after `reconnect_s`.
        """
        delay_s, since = 0.0, time.monotonic()
        while True:
            link = await self.link()
            try:
                return await work(link)
            except ConnectionError as error:
                link.end()
                if self._reconnect_s is not None and time.monotonic() - since > self._reconnect_s:
                    raise ConnectionLost(server=self.server, reason=error) from error
                await asyncio.sleep(delay_s)  # the next connection may break, too
                delay_s = min(2 * delay_s or _FIRST_DELAY_S, _LONGEST_DELAY_S)

    # -- subscriptions

    def _heard(self, method: str, params: Mapping[str, Any]) -> bool:
        task_id = self._whose(method, params)
        if task_id is None:
            return False
        self.ring(task_id)
        return "progressToken" not in params  # without one the SDK rejects it

    def ring(self, task_id: str) -> None:
        """Wake the subscribers of this task."""
        for event in self._bells.get(task_id, ()):
            event.set()

    @contextlib.contextmanager
    def subscription(self, task_id: str) -> Iterator[asyncio.Event]:
        """Yield an event that is set when the server sends something about the task."""
        event = asyncio.Event()
        events = self._bells.setdefault(task_id, set())
        events.add(event)
        try:
            yield event
        finally:
            events.discard(event)
            if not events:
                self._bells.pop(task_id, None)


async def _list_tools(link: Link) -> dict[str, dict[str, Any]]:
    """List tools through the SDK, which learns the headers of calls from the list."""
    found: dict[str, dict[str, Any]] = {}
    cursor: str | None = None
    while True:
        page = await link.guarded(link.session.list_tools(params=types.PaginatedRequestParams(cursor=cursor)))
        found |= {
            tool.name: tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in page.tools
        }
        cursor = page.next_cursor
        if cursor is None:
            return found


def _is_loss(error: MCPError) -> bool:
    """Return whether the error is about the connection. A restarted server has lost its sessions."""
    if error.code == INVALID_REQUEST:
        return "session" in error.message.lower()
    return error.code == CONNECTION_CLOSED


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__
