"""The current MCP request, and the part of it that is stored with its task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

import mcp_types as types
from mcp.server.apps import APP_MIME_TYPE, EXTENSION_ID, client_supports_apps
from mcp.server.auth.middleware.auth_context import auth_context_var, get_access_token
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken, principal_components
from mcp.server.context import HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import methods
from mcp_types.jsonrpc import MISSING_REQUIRED_CLIENT_CAPABILITY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from opentelemetry import trace
from pydantic import BaseModel
from starlette.requests import Request

from ..core import json_text
from ..core.requests import MAX_TRACESTATE_CHARS
from ..core.task import LOCAL_OWNER, Caller
from ..service.names import owner_of
from ..settings import Settings
from ..tools.spec import ToolSpec
from .sdk import connection_of

RequestContext = ServerRequestContext[Any, Any]

_LONGEST_CLAIMS = 16_384


def is_modern(ctx: RequestContext) -> bool:
    """Return whether the request uses protocol 2026-07-28 or later, without sessions."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def owner_of_request() -> str:
    """Return the owner from the request's token, or the local owner."""
    token = get_access_token()
    return LOCAL_OWNER if token is None else owner_of(*principal_components(token))


def caller_of_request() -> Caller | None:
    """Return the caller for tools that ask for it, without the token itself; None without a token."""
    token = get_access_token()
    if token is None:
        return None
    client_id, issuer, subject = principal_components(token)
    claims = token.claims or {}
    kept = claims if json_text.can_be_kept(claims, _LONGEST_CLAIMS) else {}
    return Caller(client_id, issuer, subject, tuple(token.scopes), kept)


def restore_caller(caller: Caller | None) -> None:
    """Make `get_access_token` return that caller in this context."""
    if caller is None:
        return
    claims = dict(caller.claims) or ({"iss": caller.issuer} if caller.issuer else None)
    token = AccessToken(
        token="",
        client_id=caller.client_id,
        scopes=list(caller.scopes),
        subject=caller.subject,
        claims=claims,
    )
    auth_context_var.set(AuthenticatedUser(token))


def client_of(ctx: RequestContext) -> tuple[str, str]:
    """Return name and version of the client; empty where unknown."""
    client = ctx.session.client_params.client_info if ctx.session.client_params else None
    return (client.name, client.version) if client else ("", "")


def declares(ctx: RequestContext, capability: types.ClientCapabilities) -> bool:
    return ctx.session.check_client_capability(capability)


def missing_capability(required: Mapping[str, Any]) -> MCPError:
    data = {"requiredCapabilities": dict(required)}
    return MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "Missing required client capability", data)


def request_meta(ctx: RequestContext) -> Mapping[str, Any]:
    meta = (ctx.params or {}).get("_meta")
    return meta if isinstance(meta, Mapping) else {}


def traceparent_of_request(ctx: RequestContext) -> str | None:
    traceparent = request_meta(ctx).get("traceparent")
    return traceparent if isinstance(traceparent, str) and traceparent else None


def tracestate_of_request(ctx: RequestContext) -> str | None:
    """Return the caller's tracestate; None without a traceparent."""
    return (
        None if traceparent_of_request(ctx) is None else valid_tracestate(request_meta(ctx).get("tracestate"))
    )


def valid_tracestate(given: Any) -> str | None:
    """Return the tracestate if it is well formed and not too long; W3C says to drop others."""
    fits = isinstance(given, str) and given.isascii() and given.isprintable()
    return given if fits and 0 < len(given) <= MAX_TRACESTATE_CHARS else None


def is_traced() -> bool:
    """Return whether a tracer provider is configured. Asked here so that untraced calls import no tracing
    code.
    """
    kept_nowhere = trace.ProxyTracerProvider | trace.NoOpTracerProvider
    return not isinstance(trace.get_tracer_provider(), kept_nowhere)


def arguments_of(ctx: RequestContext) -> dict[str, Any]:
    return dict((ctx.params or {}).get("arguments") or {})


def is_followup_round(ctx: RequestContext) -> bool:
    """Return whether the call answers questions of an earlier round (2026-07-28)."""
    return is_modern(ctx) and (ctx.params or {}).get("requestState") is not None


async def has_left(ctx: RequestContext) -> bool:
    """Return whether the HTTP connection of the request is closed. Other transports cancel the request."""
    look = getattr(ctx.request, "is_disconnected", None)
    return look is not None and bool(await look())


def validate(ctx: RequestContext) -> None:
    """Validate a request that will not reach the SDK's handler. Raises ValidationError, as the SDK does."""
    methods.validate_client_request(ctx.method, ctx.protocol_version, ctx.params)


def completed(ctx: RequestContext, result: dict[str, Any]) -> dict[str, Any]:
    """Add the `resultType` that 2026-07-28 requires."""
    return {"resultType": "complete", **result} if is_modern(ctx) else result


def as_dict(result: HandlerResult) -> dict[str, Any]:
    """Return a handler's result in its wire form."""
    if isinstance(result, BaseModel):
        return result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return dict(result or {})


#: Key in the task's metadata.
_KEY = "request"
#: Longer parts are left out: each task stores them.
_LONGEST_PART = 16_384
#: Never stored, whatever the settings say.
_CREDENTIALS = frozenset({"authorization", "proxy-authorization", "cookie"})
#: Stored only if the settings name the header in full.
_SOUND_SECRET = (
    "*auth*",
    "*token*",
    "*secret*",
    "*password*",
    "*credential*",
    "*key*",
    "*jwt*",
    "*signature*",
)
#: `_meta` keys with this prefix belong to the protocol and are not stored.
_PROTOCOL = "io.modelcontextprotocol/"


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """A request as an attached tool sees it. `headers` is None unless it came over HTTP."""

    modern: bool = False
    client: Mapping[str, Any] | None = None
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)
    session_id: str | None = None
    headers: Mapping[str, str] | None = None

    @classmethod
    def of(cls, task_meta: Mapping[str, Any]) -> StoredRequest:
        """Return the request stored with a task; an empty one if none was stored."""
        kept = task_meta.get(_KEY)
        known = cls.__dataclass_fields__
        return (
            cls(**{name: kept[name] for name in kept if name in known}) if isinstance(kept, dict) else cls()
        )

    def http_request(self) -> Request | None:
        """Return a Starlette request without a body; its user is the one set by `restore_caller`."""
        if self.headers is None:
            return None
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self.headers.items()]
        scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers}
        user = auth_context_var.get()
        return Request(scope if user is None else {**scope, "user": user})


def stored_request(ctx: RequestContext, kept_headers: Iterable[str]) -> dict[str, Any]:
    """Return the request as task metadata, without parts that are too long or cannot be stored."""
    params, capabilities = ctx.session.client_params, ctx.session.client_capabilities
    meta = {key: value for key, value in request_meta(ctx).items() if not key.startswith(_PROTOCOL)}
    request = StoredRequest(
        modern=is_modern(ctx),
        client=None if params is None else as_dict(params.client_info),
        capabilities=as_dict(capabilities),
        meta=meta,
        session_id=connection_of(ctx.session).session_id,
        headers=_kept_headers(getattr(ctx.request, "headers", None), kept_headers),
    )
    parts = {name: part for name in StoredRequest.__slots__ if (part := getattr(request, name)) is not None}
    if not json_text.can_be_kept(parts, _LONGEST_PART):
        parts = {name: part for name, part in parts.items() if json_text.can_be_kept(part, _LONGEST_PART)}
    return {_KEY: parts}


def _kept_headers(sent: Mapping[str, str] | None, patterns: Iterable[str]) -> dict[str, str] | None:
    if sent is None:
        return None
    named = frozenset(pattern.lower() for pattern in patterns)
    return {name: value for name, value in sent.items() if _is_kept(name.lower(), named)}


@lru_cache(maxsize=256)  # clients send the same few headers with each request
def _is_kept(name: str, patterns: frozenset[str]) -> bool:
    if name in _CREDENTIALS:
        return False
    if any(fnmatchcase(name, pattern) for pattern in _SOUND_SECRET):
        return name in patterns
    return any(fnmatchcase(name, pattern) for pattern in patterns)


EXTENSION = EXTENSION_ID
MEDIA_TYPE = APP_MIME_TYPE
#: `_meta` keys of a tool's UI: MCP Apps (specification 2026-01-26), its draft, and ChatGPT's.
UI, _OLD_PAGE, _PAGE_OF_A_HOST = "ui", "ui/resourceUri", "openai/outputTemplate"
#: In the `_meta` of a handle, and of a result: the task that the card shows.
TASK_OF_CARD, RESULT_ON_CARD = "backburner/task", "backburner/result-of"


def supports_pages(ctx: RequestContext) -> bool:
    """Return whether the client supports MCP Apps (`io.modelcontextprotocol/ui`)."""
    return client_supports_apps(ctx)


def has_own_ui(tool: Mapping[str, Any]) -> bool:
    """Return whether a listed tool has a UI of its own."""
    meta = tool.get("_meta") or {}
    of_ui = meta.get(UI)
    named = isinstance(of_ui, Mapping) and of_ui.get("resourceUri")
    return bool(named or meta.get(_OLD_PAGE) or meta.get(_PAGE_OF_A_HOST))


def uses_card(ctx: RequestContext, spec: ToolSpec, settings: Settings) -> bool:
    """Return whether the client gets a task card for calls of a slow tool.

    Not for calls that never are protocol tasks, must be such tasks, or name their task.
    """
    has_card = settings.mcp.card and spec.card and spec.task == "optional" and not spec.requires_task_id
    return has_card and supports_pages(ctx)
