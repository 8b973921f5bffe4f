"""Who a request belongs to, and who called."""

from __future__ import annotations

from mcp.server.auth.middleware.auth_context import auth_context_var, get_access_token
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken, principal_components

from .. import json_text
from ..short_names import owner_of
from ..task import LOCAL_OWNER, Caller

_LONGEST_CLAIMS = 16_384


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
