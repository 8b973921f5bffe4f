"""What the conformance suite's scenarios without tasks expect of a server."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Annotated, Any

import mcp_types as types
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.prompts.base import Prompt, UserMessage
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult, TextContent
from mcp_types.jsonrpc import MISSING_REQUIRED_CLIENT_CAPABILITY
from pydantic import BaseModel, Field, create_model

from backburner.mcp.sdk import server_in_mcpserver

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
Ctx = Context[Any]


class EventsInMemory(EventStore):
    """Lets a client of 2025-11-25 resume a stream."""

    def __init__(self) -> None:
        self._events: list[tuple[str, Any]] = []

    async def store_event(self, stream_id: str, message: Any) -> str:
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        if not last_event_id.isdigit() or not 0 < int(last_event_id) <= len(self._events):
            return None
        start = int(last_event_id)
        stream = self._events[start - 1][0]
        for number, (stream_id, message) in enumerate(self._events[start:], start + 1):
            if stream_id == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


def add_fixtures(mcp: MCPServer[Any]) -> None:
    _add_content(mcp)
    _add_client_features(mcp)
    _add_multi_round_trips(mcp)
    _add_lists(mcp)
    _add_resources_and_prompts(mcp)


def _image() -> types.ImageContent:
    return types.ImageContent(type="image", data=PNG, mime_type="image/png")


def _embedded(uri: str, kind: str, text: str) -> types.EmbeddedResource:
    inner = types.TextResourceContents(uri=uri, mime_type=kind, text=text)
    return types.EmbeddedResource(type="resource", resource=inner)


def _add_content(mcp: MCPServer[Any]) -> None:
    @mcp.tool()
    def test_simple_text() -> str:
        """Text."""
        return "This is a simple text response for testing."

    @mcp.tool()
    def test_image_content() -> list[types.ImageContent]:
        """An image."""
        return [_image()]

    @mcp.tool()
    def test_audio_content() -> list[types.AudioContent]:
        """A sound."""
        return [types.AudioContent(type="audio", data=WAV, mime_type="audio/wav")]

    @mcp.tool()
    def test_embedded_resource() -> list[types.EmbeddedResource]:
        """A resource."""
        return [_embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")]

    @mcp.tool()
    def test_multiple_content_types() -> list[TextContent | types.ImageContent | types.EmbeddedResource]:
        """All of them."""
        resource = _embedded("test://mixed-content-resource", "application/json", '{"test": "data"}')
        return [TextContent(type="text", text="Multiple content types test:"), _image(), resource]

    @mcp.tool()
    def test_error_handling() -> str:
        """An error."""
        raise RuntimeError("This tool intentionally returns an error for testing")

    @mcp.tool()
    def test_x_mcp_header(
        region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})] = "none",
    ) -> str:
        """Takes an argument that is mirrored in a header."""
        return f"region={region}"

    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    }

    @mcp.tool()
    def json_schema_2020_12_tool() -> str:
        """Is only listed."""
        return "listed"

    # MCPServer has no option for a schema that does not come from a signature.
    mcp._tool_manager._tools["json_schema_2020_12_tool"].parameters = schema


def _add_client_features(mcp: MCPServer[Any]) -> None:
    @mcp.tool()
    async def test_tool_with_logging(ctx: Ctx) -> str:
        """Logs three times."""
        for words in ("started", "processing data", "completed"):
            await ctx.info(f"Tool execution {words}")  # type: ignore[deprecated,unused-ignore]
            await asyncio.sleep(0.05)
        return "logged"

    @mcp.tool()
    async def test_tool_with_progress(ctx: Ctx) -> str:
        """Reports progress three times."""
        for progress in (0, 50, 100):
            await ctx.report_progress(progress, 100, f"Completed step {progress} of 100")
            await asyncio.sleep(0.05)
        return "progressed"

    @mcp.tool()
    async def test_sampling(prompt: str, ctx: Ctx) -> str:
        """Asks the client's model."""
        message = types.SamplingMessage(role="user", content=TextContent(type="text", text=prompt))
        result = await ctx.session.create_message(  # type: ignore[deprecated,unused-ignore]
            [message], max_tokens=100, related_request_id=ctx.request_id
        )
        return f"LLM response: {result.content.text if result.content.type == 'text' else 'none'}"

    async def elicited(ctx: Ctx, message: str, schema: type[BaseModel]) -> str:
        answer = await ctx.elicit(message, schema)
        content = answer.data.model_dump_json() if answer.action == "accept" else "{}"
        return f"action={answer.action}, content={content}"

    @mcp.tool()
    async def test_elicitation(message: str, ctx: Ctx) -> str:
        """Asks the client's user."""
        return await elicited(ctx, message, create_model("User", username=(str, ...), email=(str, ...)))

    @mcp.tool()
    async def test_elicitation_sep1034_defaults(ctx: Ctx) -> str:
        """Asks with defaults."""
        states: Any = {"enum": ["active", "inactive", "pending"]}
        form = create_model(
            "Defaults",
            name=(str, Field("John Doe")),
            age=(int, Field(30)),
            score=(float, Field(95.5)),
            status=(str, Field("active", json_schema_extra=states)),
            verified=(bool, Field(True)),
        )
        return await elicited(ctx, "Please provide user information", form)

    @mcp.tool()
    async def test_elicitation_sep1330_enums(ctx: Ctx) -> str:
        """Asks with every kind of enumeration."""
        titled: Any = [{"const": "low", "title": "Low"}, {"const": "high", "title": "High"}]
        form = create_model(
            "Enums",
            untitledSingle=(str, Field(json_schema_extra={"enum": ["a", "b"]})),
            titledSingle=(str, Field(json_schema_extra={"oneOf": titled})),
            untitledMulti=(
                list[str],
                Field(json_schema_extra={"items": {"type": "string", "enum": ["a", "b"]}}),
            ),
            titledMulti=(list[str], Field(json_schema_extra={"items": {"anyOf": titled}})),
            legacyEnum=(str, Field(json_schema_extra={"enum": ["s", "m"], "enumNames": ["Small", "Medium"]})),
        )
        return await elicited(ctx, "Please select values", form)

    @mcp.tool()
    async def test_missing_capability(ctx: Ctx) -> str:
        """Needs sampling."""
        capabilities = ctx.session.client_capabilities
        if capabilities is None or capabilities.sampling is None:
            data: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
            raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "This tool needs sampling", data)
        return "sampling is there"

    @mcp.tool()
    async def test_reconnection(ctx: Ctx) -> str:
        """Closes its stream in the middle."""
        await ctx.close_sse_stream()
        await asyncio.sleep(0.2)
        return "Reconnection test completed"


def _form(message: str, **properties: str) -> ElicitRequest:
    fields = {key: {"type": kind} for key, kind in properties.items()}
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def _sample(text: str) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=TextContent(type="text", text=text))
    return types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(messages=[message], max_tokens=100)
    )


def _said(answer: Any, field: str) -> Any:
    return answer.content.get(field) if isinstance(answer, ElicitResult) and answer.content else None


def _add_multi_round_trips(mcp: MCPServer[Any]) -> None:
    name = _form("What is your name?", name="string")
    confirm = _form("Please confirm", ok="boolean")

    @mcp.tool()
    async def test_input_required_result_elicitation(ctx: Ctx) -> str | InputRequiredResult:
        """Asks one thing."""
        said = _said((ctx.input_responses or {}).get("user_name"), "name")
        if isinstance(said, str):
            return f"Hello, {said}!"
        return InputRequiredResult(input_requests={"user_name": name})

    @mcp.tool()
    async def test_input_required_result_sampling(ctx: Ctx) -> str | InputRequiredResult:
        """Asks the model."""
        if "capital_question" in (ctx.input_responses or {}):
            return "The model has spoken."
        question = _sample("What is the capital of France?")
        return InputRequiredResult(input_requests={"capital_question": question})

    @mcp.tool()
    async def test_input_required_result_list_roots(ctx: Ctx) -> str | InputRequiredResult:
        """Asks for the roots."""
        if "client_roots" in (ctx.input_responses or {}):
            return "The client has shown its roots."
        return InputRequiredResult(input_requests={"client_roots": types.ListRootsRequest()})

    @mcp.tool()
    async def test_input_required_result_request_state(ctx: Ctx) -> str | InputRequiredResult:
        """Has a state."""
        if "confirm" in (ctx.input_responses or {}) and ctx.request_state == "nonce":
            return "state-ok"
        return InputRequiredResult(input_requests={"confirm": confirm}, request_state="nonce")

    @mcp.tool()
    async def test_input_required_result_multiple_inputs(ctx: Ctx) -> str | InputRequiredResult:
        """Asks three things."""
        requests: dict[str, Any] = {
            "user_name": name,
            "greeting": _sample("Generate a greeting"),
            "client_roots": types.ListRootsRequest(),
        }
        if requests.keys() <= (ctx.input_responses or {}).keys():
            return "All inputs received."
        return InputRequiredResult(input_requests=requests, request_state="multiple")

    @mcp.tool()
    async def test_input_required_result_multi_round(ctx: Ctx) -> str | InputRequiredResult:
        """Asks twice, one after the other."""
        state = json.loads(ctx.request_state) if ctx.request_state else {}
        answers = ctx.input_responses or {}
        if "name" in state and "step2" in answers:
            return f"{state['name']} likes {_said(answers['step2'], 'color')}."
        if state and "step1" in answers:
            step2 = _form("Step 2: What is your favourite colour?", color="string")
            state = {"name": _said(answers["step1"], "name")}
            return InputRequiredResult(input_requests={"step2": step2}, request_state=json.dumps(state))
        return InputRequiredResult(input_requests={"step1": name}, request_state=json.dumps({"round": 1}))

    @mcp.tool()
    async def test_input_required_result_tampered_state(ctx: Ctx) -> str | InputRequiredResult:
        """Has a state that nobody may change."""
        if ctx.request_state is None:
            return InputRequiredResult(input_requests={"confirm": confirm}, request_state="round-1")
        return f"state-ok: {ctx.request_state}"

    @mcp.tool()
    async def test_input_required_result_capabilities(ctx: Ctx) -> InputRequiredResult:
        """Asks only what the client can answer."""
        can = ctx.client_capabilities
        requests: dict[str, Any] = {}
        if can is None or can.sampling is not None:
            requests["sample"] = _sample("Say hello")
        if can is None or can.elicitation is not None:
            requests["ask"] = name
        return InputRequiredResult(input_requests=requests, request_state="gated")

    @mcp.prompt()
    async def test_input_required_result_prompt(ctx: Ctx) -> list[UserMessage] | InputRequiredResult:
        """A prompt that asks."""
        said = _said((ctx.input_responses or {}).get("user_context"), "context")
        if said is not None:
            return [_user(f"Use the following context: {said}")]
        return InputRequiredResult(input_requests={"user_context": _form("Which context?", context="string")})


def _user(content: str | types.ContentBlock) -> UserMessage:
    block = TextContent(type="text", text=content) if isinstance(content, str) else content
    return UserMessage(role="user", content=block)  # type: ignore[arg-type,unused-ignore]


def _add_lists(mcp: MCPServer[Any]) -> None:
    def dynamic() -> str:
        """Comes and goes."""
        return "dynamic"

    @mcp.tool()
    async def test_trigger_tool_change(ctx: Ctx) -> str:
        """Changes the list of tools."""
        mcp.add_tool(dynamic, name="test_dynamic_tool")
        mcp.remove_tool("test_dynamic_tool")
        await ctx.notify_tools_changed()
        return "changed"

    @mcp.tool()
    async def test_trigger_prompt_change(ctx: Ctx) -> str:
        """Changes the list of prompts."""
        mcp.add_prompt(Prompt.from_function(dynamic, name="test_dynamic_prompt", description="dynamic"))
        mcp.remove_prompt("test_dynamic_prompt")
        await ctx.notify_prompts_changed()
        return "changed"


def _add_resources_and_prompts(mcp: MCPServer[Any]) -> None:
    @mcp.resource("test://static-text")
    def static_text() -> str:
        """Text."""
        return "This is the content of the static text resource."

    @mcp.resource("test://static-binary")
    def static_binary() -> bytes:
        """An image."""
        return base64.b64decode(PNG)

    @mcp.resource("test://template/{id}/data")
    def template(id: str) -> str:
        """By id."""
        return json.dumps({"id": id, "templateTest": True})

    @mcp.resource("test://watched-resource")
    def watched() -> str:
        """Can be watched."""
        return "Watched resource content"

    @mcp.prompt()
    def test_simple_prompt() -> list[UserMessage]:
        """Without arguments."""
        return [_user("This is a simple prompt for testing.")]

    @mcp.prompt()
    def test_prompt_with_arguments(arg1: str, arg2: str) -> list[UserMessage]:
        """With arguments."""
        return [_user(f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'")]

    @mcp.prompt()
    def test_prompt_with_embedded_resource(resourceUri: str) -> list[UserMessage]:  # noqa: N803
        """With a resource."""
        return [
            _user(_embedded(resourceUri, "text/plain", "Embedded.")),
            _user("Please process the resource."),
        ]

    @mcp.prompt()
    def test_prompt_with_image() -> list[UserMessage]:
        """With an image."""
        return [_user(_image()), _user("Please analyze the image above.")]

    async def complete(ref: Any, argument: Any, context: Any) -> types.Completion:
        return types.Completion(values=[], total=0, has_more=False)

    decorate: Any = mcp.completion
    decorate()(complete)

    async def nothing(ctx: Any, params: Any) -> types.EmptyResult:
        return types.EmptyResult()

    low = server_in_mcpserver(mcp)  # MCPServer has no way of its own to bind these
    low.add_request_handler("logging/setLevel", types.SetLevelRequestParams, nothing)
    low.add_request_handler("resources/subscribe", types.SubscribeRequestParams, nothing)
    low.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, nothing)
