"""One server on each framework, as its author wrote it, or with Backburner attached.

    python servers.py http PORT

SERVER_KIND says which framework, and ATTACHED whether Backburner is attached: a runner, which imports this
file too, has the environment but not the arguments.
"""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import mcp_types as types
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.shared.exceptions import MCPError

from tests.system.sameness.tools import (
    Framework,
    argument_tools,
    context_tools,
    error_tools,
    result_tools,
)

TOKEN = "opensesame"
CLAIMS = {"email": "ada@example.com", "iss": "https://example.com", "sub": "ada"}
SCOPES = ["read", "write"]
OPENED = {"opened": "at the start"}


class OneToken:
    async def verify_token(self, token: str) -> AccessToken | None:
        if token != TOKEN:
            return None
        return AccessToken(token=token, client_id="ada-app", scopes=SCOPES, subject="ada", claims=CLAIMS)


def auth_settings() -> AuthSettings:
    return AuthSettings(issuer_url="https://example.com", resource_server_url=None, required_scopes=["read"])  # type: ignore[arg-type]


@asynccontextmanager
async def lifespan(server: Any) -> AsyncIterator[dict[str, str]]:
    yield dict(OPENED)


def whoami() -> dict[str, Any]:
    token = get_access_token()
    assert token is not None
    return {
        "client": token.client_id,
        "scopes": token.scopes,
        "subject": token.subject,
        "claims": token.claims,
    }


# -- MCPServer -------------------------------------------------------------------------------------


def make_mcpserver() -> Any:
    from mcp.server.mcpserver import Audio, Context, Image, MCPServer, Resolve
    from mcp.server.mcpserver.exceptions import ToolError

    def result(content: Any, structured: Any, meta: Any, is_error: bool) -> types.CallToolResult:
        return types.CallToolResult(
            content=content, structured_content=structured, _meta=meta, is_error=is_error
        )

    framework = Framework(Context, Image, Audio, ToolError, result, types.CallToolResult)
    mcp = MCPServer(
        "same",
        version="1",
        token_verifier=OneToken(),
        auth=auth_settings(),
        lifespan=lifespan,
        log_level="ERROR",
    )

    @mcp.resource("memo://today")
    def memo() -> str:
        return "buy paper"

    async def reads(ctx: Context) -> str:
        return "".join(str(part.content) for part in await ctx.read_resource("memo://today"))

    def drawer(name: str) -> str:
        return f"drawer of {name}"

    def depends(name: str, drawer: Annotated[str, Resolve(drawer)]) -> str:
        return f"{name} has {drawer}"

    def registers() -> str:
        mcp.add_tool(lambda: "came late", name="late")
        return "registered"

    for function in (*tools_of(framework), reads, depends, registers, whoami):
        mcp.tool()(function)
    return mcp


def tools_of(framework: Framework) -> list[Any]:
    return [
        *argument_tools(),
        *result_tools(framework),
        *context_tools(framework),
        *error_tools(framework),
    ]


# -- FastMCP ---------------------------------------------------------------------------------------


def make_fastmcp() -> Any:
    from fastmcp import Context, FastMCP
    from fastmcp.dependencies import Depends
    from fastmcp.exceptions import ToolError
    from fastmcp.server.auth import require_scopes
    from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
    from fastmcp.server.dependencies import get_http_headers
    from fastmcp.server.middleware import Middleware
    from fastmcp.tools.base import ToolResult
    from fastmcp.utilities.types import Audio, Image

    def result(content: Any, structured: Any, meta: Any, is_error: bool) -> ToolResult:
        return ToolResult(content=content, structured_content=structured, meta=meta, is_error=is_error)

    class Marking(Middleware):
        async def on_call_tool(self, context: Any, call_next: Any) -> Any:
            result = await call_next(context)
            if context.message.name == "marked":
                result.meta = {**(result.meta or {}), "example.com/marked": True}
            return result

    framework = Framework(Context, Image, Audio, ToolError, result, ToolResult)
    verifier = StaticTokenVerifier({TOKEN: {"client_id": "ada-app", "scopes": SCOPES, **CLAIMS}})
    mcp: Any = FastMCP("same", version="1", auth=verifier, lifespan=lifespan, middleware=[Marking()])

    def memo() -> str:
        return "buy paper"

    mcp.resource("memo://today")(memo)

    async def reads(ctx: Context) -> str:
        return "".join(str(part.content) for part in (await ctx.read_resource("memo://today")).contents)

    async def drawer() -> str:
        return "a drawer"

    async def depends(name: str, drawer: str = Depends(drawer)) -> str:
        return f"{name} has {drawer}"

    def registers() -> str:
        mcp.tool(lambda: "came late", name="late")
        return "registered"

    def marked() -> str:
        return "marked"

    def safe_headers() -> dict[str, str | None]:
        sent = get_http_headers()
        return {name: sent.get(name) for name in ("x-team", "authorization", "user-agent")}

    async def times_out() -> str:
        import asyncio

        await asyncio.sleep(30)
        return "not reached"

    for function in (*tools_of(framework), reads, depends, registers, whoami, marked, safe_headers):
        mcp.tool(function)
    mcp.tool(times_out, timeout=0.2)
    mcp.tool(lambda: "let in", name="allowed", auth=require_scopes("write"))
    mcp.tool(lambda: "not reached", name="forbidden", auth=require_scopes("root"))
    return mcp


# -- the lowlevel server ---------------------------------------------------------------------------


def make_lowlevel() -> Any:
    from mcp.server.lowlevel import Server

    number = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    structured = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
        tools = [
            types.Tool(
                name=name,
                input_schema=number if name == "echo" else {"type": "object"},
                output_schema=structured if name == "structured" else None,
            )
            for name in LOWLEVEL
        ]
        return types.ListToolsResult(tools=tools)

    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name not in LOWLEVEL:
            raise MCPError(-32602, f"Unknown tool: {params.name}")
        result: types.CallToolResult = await LOWLEVEL[params.name](ctx, params.arguments or {})
        return result

    return Server("same", version="1", lifespan=lifespan, on_list_tools=list_tools, on_call_tool=call_tool)


def said(text: Any) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=str(text))])


async def echo(ctx: Any, arguments: dict[str, Any]) -> types.CallToolResult:
    return said(arguments)


async def structured(ctx: Any, arguments: dict[str, Any]) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.ImageContent(type="image", data="AAAA", mime_type="image/png")],
        structured_content={"n": 1},
        _meta={"example.com/mine": 1},
    )


async def empty(ctx: Any, arguments: dict[str, Any]) -> types.CallToolResult:
    return types.CallToolResult(content=[])


async def says_no(ctx: Any, arguments: dict[str, Any]) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text="no")], is_error=True)


async def raises(ctx: Any, arguments: dict[str, Any]) -> types.CallToolResult:
    raise ValueError("in the handler")


async def protocol(ctx: Any, arguments: dict[str, Any]) -> types.CallToolResult:
    raise MCPError(-32050, "no such thing", {"x": 1})


async def logs(ctx: Any, arguments: dict[str, Any]) -> types.CallToolResult:
    await ctx.session.send_log_message("info", {"n": 1}, "lab", ctx.request_id)
    await ctx.session.send_log_message("error", "trouble", None, ctx.request_id)
    return said("logged")


async def counted(ctx: Any, arguments: dict[str, Any]) -> types.CallToolResult:
    await ctx.session.report_progress(1, 2, "half")
    return said("counted")


async def headers(ctx: Any, arguments: dict[str, Any]) -> types.CallToolResult:
    return said({name: ctx.request.headers.get(name) for name in ("x-team", "user-agent")})


async def client(ctx: Any, arguments: dict[str, Any]) -> types.CallToolResult:
    return said(ctx.session.client_params.client_info.name)


async def state(ctx: Any, arguments: dict[str, Any]) -> types.CallToolResult:
    return said(ctx.lifespan_context)


async def lowlevel_whoami(ctx: Any, arguments: dict[str, Any]) -> types.CallToolResult:
    return said(whoami())


LOWLEVEL: dict[str, Any] = {
    "echo": echo,
    "structured": structured,
    "empty": empty,
    "says_no": says_no,
    "raises": raises,
    "protocol": protocol,
    "logs": logs,
    "counted": counted,
    "headers": headers,
    "client": client,
    "state": state,
    "whoami": lowlevel_whoami,
}

MAKERS = {"mcpserver": make_mcpserver, "fastmcp": make_fastmcp, "lowlevel": make_lowlevel}

server = MAKERS[os.environ["SERVER_KIND"]]()
if os.environ.get("ATTACHED"):
    from backburner import Backburner

    # All but `registers`, which is to change the server that the other tools belong to.
    patterns = ("[!r]*", "reads", "request_meta", "raises")
    bb = Backburner.attach(server, slow={pattern: {"answer": "hold", "retries": 0} for pattern in patterns})


def main() -> None:
    port = int(sys.argv[2])
    kind = os.environ["SERVER_KIND"]
    if kind == "mcpserver":
        server.run("streamable-http", port=port)
    elif kind == "fastmcp":
        server.run("http", port=port, show_banner=False, log_level="ERROR")
    else:
        import uvicorn

        app = server.streamable_http_app(token_verifier=OneToken(), auth=auth_settings())
        uvicorn.run(app, port=port, log_level="error")


if __name__ == "__main__":
    main()
