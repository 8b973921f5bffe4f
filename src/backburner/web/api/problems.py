"""What goes wrong, as `application/problem+json` (RFC 9457): each error has its code and its status."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from ... import errors
from .. import refusals

#: The first that an error is one of counts.
STATUS: tuple[tuple[type[errors.BackburnerError], int], ...] = (
    (refusals.TokenRequired, 401),
    (refusals.NotPermitted, 403),
    (refusals.CrossSite, 403),
    (refusals.NoSuchPath, 404),
    (refusals.NoSuchMethod, 405),
    (refusals.NotJson, 415),
    (errors.TaskNotFound, 404),
    (errors.ArtifactNotFound, 404),
    (errors.AmbiguousOwner, 409),
    (errors.NotAllowedNow, 409),
    (errors.NotFinished, 409),
    (errors.IdempotencyConflict, 409),
    (errors.TooLarge, 413),
    (errors.InvalidRequest, 400),
    (errors.QueueFull, 429),
    (errors.StoreRefused, 400),
    (errors.StoreError, 503),
    (errors.EngineError, 503),
    (errors.NoTarget, 503),
    (errors.ArtifactStorageError, 503),
)
MEDIA_TYPE = "application/problem+json"
#: All bodies are hostile text: no browser takes one for a page, and no other site reads it.
SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_AGAIN_S = 5


def status_of(error: errors.BackburnerError) -> int:
    return next((status for kind, status in STATUS if isinstance(error, kind)), 500)


def problem(error: errors.BackburnerError) -> Response:
    """The answer to a request that came to nothing."""
    status = status_of(error)
    body = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": str(error),
        "code": error.code,
        "details": _plain(error.details),
    }
    headers = dict(SAFE)
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if status in (429, 503):
        headers["Retry-After"] = str(error.details.get("retry_after_s", _AGAIN_S))
    text = json.dumps(body, ensure_ascii=True)
    return Response(text, status, headers, MEDIA_TYPE)


def _plain(details: dict[str, Any]) -> dict[str, Any]:
    return {name: value if isinstance(value, int | float) else str(value) for name, value in details.items()}
