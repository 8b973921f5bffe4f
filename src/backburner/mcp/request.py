"""The request that is being answered: what it says, who sent it, and what they can do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mcp_types as types
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

from .. import json_text
from ..short_names import owner_of
from ..task import LOCAL_OWNER, Caller
from ..task_request import MAX_TRACESTATE_CHARS

RequestContext = ServerRequestContext[Any, Any]

_LONGEST_CLAIMS = 16_384


def is_modern(ctx: RequestContext) -> bool:
    """Whether the request is of the era without sessions and handshakes, 2026-07-28 and later."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def owner_of_request() -> str:
    """The owner of what this request makes: its token's client, issuer and subject, or the local owner."""
    token = get_access_token()
    return LOCAL_OWNER if token is None else owner_of(*principal_components(token))


def caller_of_request() -> Caller | None:
    """Who called, without the token itself, for a tool that asks in the runner; None without a token."""
    token = get_access_token()
    if token is None:
        return None
    client_id, issuer, subject = principal_components(token)
    claims = token.claims or {}
    kept = claims if json_text.can_be_kept(claims, _LONGEST_CLAIMS) else {}
    return Caller(client_id, issuer, subject, tuple(token.scopes), kept)


def become(caller: Caller | None) -> None:
    """Make `get_access_token` give that caller again in this context."""
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
    """The name and the version of the client; empty where it does not say."""
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
    """As the caller gave it."""
    traceparent = request_meta(ctx).get("traceparent")
    return traceparent if isinstance(traceparent, str) and traceparent else None


def tracestate_of_request(ctx: RequestContext) -> str | None:
    """As the caller gave it; it means nothing without a traceparent."""
    return (
        None if traceparent_of_request(ctx) is None else kept_tracestate(request_meta(ctx).get("tracestate"))
    )


def kept_tracestate(given: Any) -> str | None:
    """It, if it can be one and is not too long; else it is dropped, as W3C says."""
    fits = isinstance(given, str) and given.isascii() and given.isprintable()
    return given if fits and 0 < len(given) <= MAX_TRACESTATE_CHARS else None


def is_traced() -> bool:
    """As `tracing.has_provider`, and asked here, so that a call without spans passes no file about them."""
    kept_nowhere = trace.ProxyTracerProvider | trace.NoOpTracerProvider
    return not isinstance(trace.get_tracer_provider(), kept_nowhere)


def arguments_of(ctx: RequestContext) -> dict[str, Any]:
    """The arguments of a `tools/call`."""
    return dict((ctx.params or {}).get("arguments") or {})


def comes_again(ctx: RequestContext) -> bool:
    """Whether a call is the next round of one that was answered with questions, as 2026-07-28 has it."""
    return is_modern(ctx) and (ctx.params or {}).get("requestState") is not None


async def has_left(ctx: RequestContext) -> bool:
    """Whether the HTTP connection is closed on which a request came. Elsewhere that ends the request."""
    look = getattr(ctx.request, "is_disconnected", None)
    return look is not None and bool(await look())


def validate(ctx: RequestContext) -> None:
    """Check a request that will not reach the SDK's handler. Raises ValidationError, as the SDK does."""
    methods.validate_client_request(ctx.method, ctx.protocol_version, ctx.params)


def completed(ctx: RequestContext, result: dict[str, Any]) -> dict[str, Any]:
    """At 2026-07-28 every result says what kind it is; one that does not say is complete."""
    return {"resultType": "complete", **result} if is_modern(ctx) else result


def as_dict(result: HandlerResult) -> dict[str, Any]:
    """What a handler gave, in the form that goes over the wire."""
    if isinstance(result, BaseModel):
        return result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return dict(result or {})
