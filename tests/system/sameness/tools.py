"""Tools of every kind that the decorating frameworks know, made for the one whose names are given.

No annotation here is a text: a framework could not resolve a name that is local.
"""

import asyncio
import base64
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import Enum
from typing import Annotated, Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8BQDwAEgAF/pooBPQAAAABJRU5ErkJggg=="
)
#: So long between two notices, that each is sent: of progress only the latest is, ten times a second.
STEP_S = 0.5


class Item(BaseModel):
    name: str
    count: int = 1


class Order(BaseModel):
    items: list[Item]
    note: str | None = None


class Colour(Enum):
    RED = "red"
    GREEN = "green"


class Entry(TypedDict):
    key: str
    value: int


@dataclass
class Point:
    x: float
    y: float = 0.0


class OutOfPaper(Exception):
    """An exception of the author's own."""


@dataclass(frozen=True)
class Framework:
    """What the tools need that each framework has under names of its own."""

    context: type[Any]
    image: type[Any]
    audio: type[Any]
    tool_error: type[Exception]
    #: Makes a whole result of content, structured content, meta data and whether it is an error.
    result: Callable[..., Any]
    result_type: Any


def argument_tools() -> list[Callable[..., Any]]:
    def add(a: int, b: int = 2) -> int:
        """Add two numbers."""
        return a + b

    def kinds(flag: bool, ratio: float, name: str | None = None) -> dict[str, Any]:
        return {"flag": flag, "ratio": ratio, "name": name}

    def order(order: Order) -> str:
        return f"{type(order).__name__}: {order.model_dump_json()}"

    def colour(colour: Colour) -> str:
        return colour.name

    def either(value: int | str | list[int]) -> str:
        return f"{type(value).__name__} {value}"

    def times(day: date, at: datetime, span: timedelta) -> str:
        return f"{day.isoformat()} {at.isoformat()} {span.total_seconds()}"

    def entry(entry: Entry) -> str:
        return f"{entry['key']}={entry['value']}"

    def limited(n: Annotated[int, Field(ge=1, le=10)]) -> int:
        return n

    def hidden(data: bytes) -> int:
        return len(data)

    return [add, kinds, order, colour, either, times, entry, limited, hidden]


def result_tools(framework: Framework) -> list[Callable[..., Any]]:
    def text() -> str:
        return "straße \u2028 \U0001f9ea <&> \t\n end"

    def empty_text() -> str:
        return ""

    def number() -> float:
        return 0.1 + 0.2

    def truth() -> bool:
        return False

    def nothing() -> None:
        return None

    def numbers() -> list[int]:
        return [3, 1, 2]

    def empty_list() -> list[str]:
        return []

    def mapping() -> dict[str, int]:
        return {"b": 1, "a": 2}

    def model() -> Order:
        return Order(items=[Item(name="x"), Item(name="y", count=3)])

    def models() -> list[Item]:
        return [Item(name="x"), Item(name="y")]

    def point() -> Point:
        return Point(1.5)

    def typed() -> Entry:
        return {"key": "k", "value": 7}

    def untyped() -> Any:
        return {"when": date(2026, 7, 28), "many": (1, 2), "none": None}

    def perhaps(found: bool = False) -> int | None:
        return 4 if found else None

    def image() -> framework.image:  # type: ignore[name-defined]
        return framework.image(data=PIXEL, format="png")

    def audio() -> framework.audio:  # type: ignore[name-defined]
        return framework.audio(data=b"RIFF", format="wav")

    def link() -> types.ResourceLink:
        return types.ResourceLink(type="resource_link", uri="file:///tmp/x", name="x", mime_type="text/plain")

    def embedded() -> types.EmbeddedResource:
        held = types.TextResourceContents(uri="memo://1", text="held", mime_type="text/plain")
        return types.EmbeddedResource(type="resource", resource=held)

    def mixed() -> Any:
        return ["words", framework.image(data=PIXEL, format="png"), {"n": 1}]

    def whole() -> framework.result_type:  # type: ignore[name-defined]
        block = types.TextContent(type="text", text="whole", _meta={"block": 1})
        return framework.result([block], {"n": 1}, {"example.com/mine": {"deep": [1]}}, False)

    def says_no() -> framework.result_type:  # type: ignore[name-defined]
        return framework.result([types.TextContent(type="text", text="no")], None, None, True)

    plain = [text, empty_text, number, truth, nothing, numbers, empty_list, mapping, model, models, point]
    return [*plain, typed, untyped, perhaps, image, audio, link, embedded, mixed, whole, says_no]


def in_context(framework: Framework, *functions: Callable[..., Any]) -> list[Callable[..., Any]]:
    """The same, with the framework's own context for their `ctx`."""
    for function in functions:
        function.__annotations__["ctx"] = framework.context
    return list(functions)


def context_tools(framework: Framework) -> list[Callable[..., Any]]:
    async def logs(ctx: Any) -> str:
        await ctx.debug("looking closely")
        await ctx.info("all is well")
        await ctx.warning("all is\nnearly well", logger_name="lab.door")
        return "logged"

    async def counted(ctx: Any) -> str:
        for step in (100, 200, 300):
            await ctx.report_progress(step, 300, f"at {step}")
            await asyncio.sleep(STEP_S)
        return "counted"

    async def endless(ctx: Any) -> str:
        for step in (1, 2):
            await ctx.report_progress(step)
            await asyncio.sleep(STEP_S)
        return "no end"

    def client(ctx: Any) -> dict[str, Any]:
        info = ctx.request_context.session.client_params.client_info
        return {"name": info.name, "version": info.version}

    def headers(ctx: Any) -> dict[str, Any]:
        sent = ctx.request_context.request.headers
        return {name: sent.get(name) for name in ("x-team", "X-Trace-Id", "user-agent")}

    def credentials(ctx: Any) -> dict[str, Any]:
        sent = ctx.request_context.request.headers
        return {name: sent.get(name) for name in ("authorization", "cookie", "x-api-key")}

    def request_meta(ctx: Any) -> Any:
        return (ctx.request_context.meta or {}).get("example.com/asked")

    def state(ctx: Any) -> str:
        return str(ctx.request_context.lifespan_context["opened"])

    return in_context(framework, logs, counted, endless, client, headers, credentials, request_meta, state)


def error_tools(framework: Framework) -> list[Callable[..., Any]]:
    def fails() -> str:
        raise framework.tool_error("there is no such drawer")

    def crashes() -> str:
        return str(1 / 0)

    def custom() -> str:
        raise OutOfPaper("tray 2")

    def protocol() -> str:
        raise MCPError(-32050, "no such thing", {"x": 1})

    def breaks_a_model() -> str:
        return Item.model_validate({"count": "many"}).name

    async def fails_late(ctx: Any) -> str:
        await ctx.report_progress(1, 2, "half")
        await asyncio.sleep(STEP_S)
        raise ValueError("in the second half")

    def unwritable() -> dict[str, Any]:
        return {"self": object()}

    def slow() -> str:
        time.sleep(0.5)
        return "slept"

    return [
        *(fails, crashes, custom, protocol, breaks_a_model, unwritable, slow),
        *in_context(framework, fails_late),
    ]
