"""What of a request is kept with its task, so that an attached tool finds it in the runner.

Whatever is kept is in the store in clear, so no credentials are: docs/decisions/0021.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from mcp.server.auth.middleware.auth_context import auth_context_var
from starlette.requests import Request

from .. import json_text
from .request import RequestContext, as_dict, is_modern, request_meta
from .sdk import connection_of

#: Where it is in the task's meta data.
_KEY = "request"
#: What is longer is left out: it is the client's, and goes into the store with each task.
_LONGEST_PART = 16_384
#: Never kept, whatever the settings say.
_CREDENTIALS = frozenset({"authorization", "proxy-authorization", "cookie"})
#: Kept only if the settings name them in full.
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
#: The client's own words about the request. The rest is the protocol's.
_PROTOCOL = "io.modelcontextprotocol/"


@dataclass(frozen=True, slots=True)
class KeptRequest:
    """A request as a tool sees it. `headers` are None where it did not come over HTTP."""

    modern: bool = False
    client: Mapping[str, Any] | None = None
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)
    session_id: str | None = None
    headers: Mapping[str, str] | None = None

    @classmethod
    def of(cls, task_meta: Mapping[str, Any]) -> KeptRequest:
        """The one that a task was made by; an empty one where nothing was kept."""
        kept = task_meta.get(_KEY)
        known = cls.__dataclass_fields__
        return (
            cls(**{name: kept[name] for name in kept if name in known}) if isinstance(kept, dict) else cls()
        )

    def http_request(self) -> Request | None:
        """The request as Starlette has it, without a body; its user is who `become` made current."""
        if self.headers is None:
            return None
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self.headers.items()]
        scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers}
        user = auth_context_var.get()
        return Request(scope if user is None else {**scope, "user": user})


def kept_request(ctx: RequestContext, kept_headers: Iterable[str]) -> dict[str, Any]:
    """As a part of the task's meta data. What is too long, or a store could not keep, is left out."""
    params, capabilities = ctx.session.client_params, ctx.session.client_capabilities
    meta = {key: value for key, value in request_meta(ctx).items() if not key.startswith(_PROTOCOL)}
    request = KeptRequest(
        modern=is_modern(ctx),
        client=None if params is None else as_dict(params.client_info),
        capabilities=as_dict(capabilities),
        meta=meta,
        session_id=connection_of(ctx.session).session_id,
        headers=_kept_headers(getattr(ctx.request, "headers", None), kept_headers),
    )
    parts = {name: part for name in KeptRequest.__slots__ if (part := getattr(request, name)) is not None}
    if not json_text.can_be_kept(parts, _LONGEST_PART):  # it is not as short as all requests are
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
