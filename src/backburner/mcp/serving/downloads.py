"""Downloads of artifacts: for whoever has a link that is still good, also in ranges, wherever the file is."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from ...app import Backburner
from ...errors import ArtifactStorageError, BackburnerError
from ...folders import as_attachment
from ...task import Artifact
from ..links import Links, media_type

_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_RETRY_AFTER_S = "10"
#: What a page of this origin could run or show as a part of itself.
_ACTIVE = re.compile(r"html|[/+]xml|javascript|ecmascript|css|pdf", re.IGNORECASE)
_SVG = "image/svg+xml"  # as the source of a picture a browser runs nothing of it


def download_from(app: Backburner) -> Any:
    """The endpoint of `/artifacts/{artifact_id}/{name}`."""

    async def download(request: Request) -> Response:
        artifact_id = request.path_params["artifact_id"]
        try:
            artifact = await app.service.aio.run(
                _linked, app, artifact_id, request.query_params.get("token", "")
            )
        except BackburnerError:
            return PlainTextResponse("This link is not valid, or not any more.\n", status_code=404)
        headers = {
            # The file is a tool's output: it must never run as a page of this origin.
            "Content-Security-Policy": "sandbox; default-src 'none'",
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "private, no-store",
            "ETag": f'"{artifact.sha256}"',
        }
        return await _stream(app, artifact, request, headers)

    return download


def _linked(app: Backburner, artifact_id: str, token: str) -> Artifact:
    Links(app.store, "", 0).check(artifact_id, token)
    return app.store.artifact(artifact_id)


async def _stream(app: Backburner, artifact: Artifact, request: Request, headers: dict[str, str]) -> Response:
    """The bytes of an artifact as its storage gives them: one range of them, if that is asked for.

    The file is opened once, and what is read and sent is what was opened.
    """
    size = artifact.size_bytes
    offset, end = asked = _range(request, artifact) or (0, size)
    if offset >= end and size:
        return PlainTextResponse(status_code=416, headers={"Content-Range": f"bytes */{size}"})
    is_head = request.method == "HEAD"
    chunks = app.artifacts.chunks(artifact, offset, 1 if is_head else end - offset)
    try:
        # Before the answer begins: then it can still say that there is none.
        first = await app.service.aio.run(next, chunks, b"")
    except ArtifactStorageError as error:
        return PlainTextResponse(f"{error}\n", status_code=503, headers={"Retry-After": _RETRY_AFTER_S})
    except OSError:
        return PlainTextResponse("This file is gone.\n", status_code=404)
    headers |= {
        "Accept-Ranges": "bytes",
        "Content-Length": str(end - offset),
        "Content-Disposition": as_attachment(artifact.name),
    }
    if asked != (0, size):
        headers["Content-Range"] = f"bytes {offset}-{end - 1}/{size}"
    body: Iterator[bytes] = iter(()) if is_head else itertools.chain([first], chunks)
    status = 200 if asked == (0, size) else 206
    return StreamingResponse(body, status_code=status, media_type=_passive(artifact), headers=headers)


def _passive(artifact: Artifact) -> str:
    """The media type of an artifact, unless a browser could run what has it."""
    kind = media_type(artifact)
    return "application/octet-stream" if _ACTIVE.search(kind) and kind != _SVG else kind


def _range(request: Request, artifact: Artifact) -> tuple[int, int] | None:
    """Where the range begins and ends that a request asks for; None for all, as for several at once."""
    found = _RANGE.fullmatch(request.headers.get("range", "").strip())
    known = request.headers.get("if-range", f'"{artifact.sha256}"')
    if found is None or known != f'"{artifact.sha256}"' or not any(found.groups()):
        return None
    first, last = found.groups()
    if not first:
        return max(0, artifact.size_bytes - int(last)), artifact.size_bytes
    return int(first), min(artifact.size_bytes, int(last) + 1) if last else artifact.size_bytes
