"""A chat in a browser: a host of MCP Apps that shows the cards of a real server to the user of a model."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp.client import Client
from mcp.client.extension import advertise
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import Implementation
from playwright.sync_api import Browser, FrameLocator, Page, Route

from backburner.mcp.sdk import raw_request
from tests.browsing import Complaints

UI = "io.modelcontextprotocol/ui"
MEDIA_TYPE = "text/html;profile=mcp-app"
FOLDER = Path(__file__).parent
CALL_ID = "call-7"
#: What a host must use for a page that declares nothing, word by word.
DEFAULT_CSP = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; media-src 'self' data:; connect-src 'none';"
)


class Connection:
    """A client of a server, for who has no event loop."""

    def __init__(self, portal: BlockingPortal, client: Client) -> None:
        self._portal, self._client = portal, client
        self._begun: list[Future[dict[str, Any]]] = []

    def begin(self, method: str, params: dict[str, Any]) -> Future[dict[str, Any]]:
        """The raw result of a request that may take long."""
        self._begun.append(self._portal.start_task_soon(raw_request, self._client.session, method, params))
        return self._begun[-1]

    def cancel_all(self) -> None:
        """Cancel the requests that are under way."""
        for request in self._begun:
            request.cancel()

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """The raw result of any request. Raises MCPError."""
        return self._portal.call(raw_request, self._client.session, method, params or {})

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        return self.ask("tools/call", {"name": name, "arguments": arguments})

    def hold(self, name: str, **arguments: Any) -> Future[dict[str, Any]]:
        """A call that may be held."""
        return self.begin("tools/call", {"name": name, "arguments": arguments})

    def hand_out(self, name: str, **arguments: Any) -> dict[str, Any]:
        """The handle of a call that asks for one."""
        return self.ask("tools/call", {"name": name, "arguments": arguments, "_meta": {"async": True}})

    def tools(self) -> dict[str, dict[str, Any]]:
        return {tool["name"]: tool for tool in self.ask("tools/list")["tools"]}


@contextlib.asynccontextmanager
async def _client(
    url: str, era: str, media_types: Sequence[str], token: str | None, name: str
) -> AsyncIterator[Client]:
    import httpx2

    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
        extensions = [advertise(UI, {"mimeTypes": [*media_types]})] if media_types else []
        mode = "2026-07-28" if era == "2026" else "legacy"
        transport = streamable_http_client(url, http_client=http)
        info = Implementation(name=name, version="1")
        async with Client(transport, mode=mode, extensions=extensions, client_info=info) as client:
            yield client


@contextlib.contextmanager
def connected(
    url: str,
    era: str = "2025",
    *,
    shows_pages: bool = True,
    media_types: Sequence[str] = (MEDIA_TYPE,),
    token: str | None = None,
    name: str = "chat",
) -> Iterator[Connection]:
    """A host that shows pages of those media types, or none."""
    shown = media_types if shows_pages else ()
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(_client(url, era, shown, token, name)) as client,
    ):
        connection = Connection(portal, client)
        try:
            yield connection
        finally:
            connection.cancel_all()


class Chat:
    """A host's window."""

    def __init__(self, browser: Browser, server: Connection, **options: Any) -> None:
        self.server = server
        self.tools = server.tools()
        self.model_calls: list[str] = []
        self.policy = DEFAULT_CSP
        self.fetched: list[
            str
        ] = []  # from elsewhere: a browser also tells of requests that a policy has blocked
        self.page: Page = browser.new_page(**options)
        self.complaints = Complaints(self.page, "http://host.test/", "http://sandbox.test/")
        self.page.route("**/*", self._serve)
        self.page.expose_function("askServer", self._pass_on)
        self.page.expose_function("answerOfCall", self._answer)
        self._call: Future[dict[str, Any]] | None = None
        self.page.goto("http://host.test/")

    # -- the model, and its user

    def call(self, name: str, **arguments: Any) -> Future[dict[str, Any]]:
        """The model calls a tool, and its card is shown at once; it gets the answer when that is there."""
        self.model_calls.append(name)
        self._call = self.server.hold(name, **arguments)
        self.show(name, arguments, None, is_held=True)
        return self._call

    def hold_without_answer(self, name: str, **arguments: Any) -> Future[dict[str, Any]]:
        """The card of a call that is held, whose answer the host will not have."""
        call = self.server.hold(name, **arguments)
        self.show(name, arguments, None)
        return call

    def hand_out(self, name: str, **arguments: Any) -> str:
        """The model's call asks for a handle, which the card gets; the task."""
        handle = self.server.hand_out(name, **arguments)
        self.show(name, arguments, handle)
        task_id: str = handle["_meta"]["backburner/task"]
        return task_id

    def show(
        self,
        name: str,
        arguments: dict[str, Any],
        result: dict[str, Any] | None,
        *,
        refuses: list[str] | None = None,
        is_held: bool = False,
        **context: Any,
    ) -> None:
        """The card of a call that was made before, as in a chat that is opened again; or one under way."""
        tool = self.tools[name]
        assert tool["_meta"]["ui"]["resourceUri"].startswith("ui://")
        self.page.evaluate(
            "given => chat.open(given)",
            {
                "tools": list(self.tools.values()),
                "context": {
                    "toolInfo": {"id": CALL_ID, "tool": tool},
                    "displayMode": "inline",
                    "theme": "light",
                    **context,
                },
                "call": {"arguments": arguments, "result": result, "isHeld": is_held},
                "refuses": refuses or [],
            },
        )

    @property
    def card(self) -> FrameLocator:
        return self.page.frame_locator("iframe").frame_locator("iframe")

    def seen(self, method: str) -> list[dict[str, Any]]:
        """The messages of that method that the card has sent."""
        found: list[dict[str, Any]] = self.page.evaluate("method => chat.methods(method)", method)
        return found

    def looks(self) -> int:
        """How often the card has looked at its task."""
        calls = self.seen("tools/call")
        return sum(call["params"]["name"] == "backburner_card_look" for call in calls)

    # -- the browser

    def _serve(self, route: Route) -> None:
        match route.request.url:
            case "http://host.test/":
                route.fulfill(body=(FOLDER / "host.html").read_text(), content_type="text/html")
            case "http://sandbox.test/":
                route.fulfill(body=(FOLDER / "sandbox.html").read_text(), content_type="text/html")
            case "http://sandbox.test/view.html":
                (tool,) = {
                    tool["_meta"]["ui"]["resourceUri"] for tool in self.tools.values() if _is_shown(tool)
                }
                (content,) = self.server.ask("resources/read", {"uri": tool})["contents"]
                assert content["mimeType"] == MEDIA_TYPE
                headers = {"Content-Security-Policy": self.policy, "Content-Type": "text/html; charset=utf-8"}
                route.fulfill(body=content["text"], headers=headers)
            case other:
                self.fetched.append(other)
                route.abort()

    def _pass_on(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"result": self.server.ask(method, params)}
        except MCPError as error:
            return {"error": {"code": error.code, "message": error.message}}

    def _answer(self) -> dict[str, Any] | None:
        """The answer to the model's call, once it is there."""
        assert self._call is not None
        return {"result": self._call.result()} if self._call.done() else None

    def close(self) -> None:
        self.page.close()


def _is_shown(tool: dict[str, Any]) -> bool:
    return "resourceUri" in ((tool.get("_meta") or {}).get("ui") or {})
