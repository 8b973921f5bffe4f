"""A task's result, logs and artifacts as MCP resources, which can be read in ranges.

    task://{task_id}/result                              the result, as JSON text
    task://{task_id}/logs                                the log, a line for each record
    task://{task_id}/artifacts                           the files that the task has made so far, as JSON
    task://{task_id}/artifacts/{artifact_id}/{name}      a file that the task made

`?offset=…&length=…` reads a range of bytes. Of what is not read whole, `_meta` says where the
range lies and how long the whole is. Without a range at most a mebibyte is read.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError
from mcp_types.jsonrpc import INVALID_PARAMS

from ..errors import ArtifactNotFound, BackburnerError
from ..folders import artifact_file
from ..result_parts import large_result
from ..service import TaskService
from ..task import Artifact
from ..times import iso
from .access import TaskAccess
from .jsonrpc_errors import jsonrpc_errors
from .links import media_type
from .owner import owner_of_request
from .request import RequestContext, as_dict, completed, is_modern, validate
from .server_dialect import Around

SCHEME = "task://"
_MOST_BYTES = 1 << 20
#: No file is longer, and no other number can be asked of a file.
_FURTHEST = (1 << 63) - 1
_LOG_PAGE = 5000

TEMPLATES: tuple[dict[str, Any], ...] = (
    {
        "uriTemplate": "task://{task_id}/result{?offset,length}",
        "name": "task-result",
        "description": "The result of a finished task, as JSON",
        "mimeType": "application/json",
    },
    {
        "uriTemplate": "task://{task_id}/logs{?offset,length}",
        "name": "task-logs",
        "description": "What a task has printed and logged so far",
        "mimeType": "text/plain",
    },
    {
        "uriTemplate": "task://{task_id}/artifacts{?offset,length}",
        "name": "task-artifacts",
        "description": "The files that a task has made so far, with the addresses to read them at, as JSON",
        "mimeType": "application/json",
    },
    {
        "uriTemplate": "task://{task_id}/artifacts/{artifact_id}/{name}{?offset,length}",
        "name": "task-artifact",
        "description": "A file that a task has made",
    },
)


@dataclass(frozen=True)
class _Range:
    offset: int
    length: int


class TaskResources:
    """Reads `task://` addresses for the owner of the request."""

    def __init__(self, access: TaskAccess) -> None:
        self._access = access

    def around(self) -> Mapping[str, Around]:
        """The server's own methods to whose answers the tasks' resources are added."""
        return {"resources/templates/list": self.list_templates, "resources/read": self.answer_read}

    async def list_templates(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        result = as_dict(await call_next(ctx))
        if result.get("nextCursor"):
            return result
        return {**result, "resourceTemplates": [*result["resourceTemplates"], *TEMPLATES]}

    async def answer_read(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        uri = (ctx.params or {}).get("uri")
        if not isinstance(uri, str) or not uri.startswith(SCHEME):
            return await call_next(ctx)
        validate(ctx)
        with jsonrpc_errors():
            result = await self.read(uri)
        if is_modern(ctx):
            result |= {"ttlMs": 0, "cacheScope": "private"}
        return completed(ctx, result)

    async def read(self, uri: str) -> dict[str, Any]:
        """A `ReadResourceResult`. Raises MCPError for an address that leads nowhere, whatever the reason."""
        await self._access.ready()
        service = self._access.service
        try:
            return await service.aio.run(self._read, service, uri, owner_of_request())
        except (BackburnerError, OSError):
            # The same words for what is not there, what is another's, and what has expired.
            raise MCPError(INVALID_PARAMS, "Resource not found", {"uri": uri}) from None

    def _read(self, service: TaskService, uri: str, owner: str) -> dict[str, Any]:
        # By hand: a URL parser turns the host of an address to lower case, and stumbles over brackets.
        path, _, query = uri.removeprefix(SCHEME).partition("?")
        part = _range_of(uri, query)
        task_id, *rest = path.split("/")
        match rest:
            case ["result"]:
                return self._read_result(service, task_id, owner, uri, part)
            case ["logs"]:
                text = "".join(_log_lines(service, task_id, owner)).encode()
                return _text(uri, text, part, "text/plain")
            case ["artifacts"]:
                made = json.dumps(self._access.artifacts_of(task_id, owner), ensure_ascii=False).encode()
                return _text(uri, made, part, "application/json")
            case ["artifacts", artifact_id, _, *_]:  # the name is for people, and may hold anything
                service.head(task_id, owner=owner)
                artifact = service.store.artifact(artifact_id)
                if artifact.task_id != task_id:
                    raise ArtifactNotFound(artifact_id=artifact_id)
                return self._read_file(uri, artifact, part)
        raise ArtifactNotFound(artifact_id=uri)

    def _read_result(
        self, service: TaskService, task_id: str, owner: str, uri: str, part: _Range
    ) -> dict[str, Any]:
        outcome = service.result(task_id, owner=owner)
        large = large_result(outcome.task, outcome.artifacts)
        if large is not None:
            return self._read_file(uri, large, part)
        task = outcome.task
        value = task.result if task.error is None else {"error": task.error.to_dict()}
        return _text(uri, json.dumps(value, ensure_ascii=False).encode(), part, "application/json")

    def _read_file(self, uri: str, artifact: Artifact, part: _Range) -> dict[str, Any]:
        kind = media_type(artifact)
        with artifact_file(self._access.app.data_dir, artifact).open("rb") as file:
            file.seek(part.offset)
            data = file.read(part.length)
        if kind == "application/json" or kind.startswith("text/"):
            return _contents(uri, data, part, artifact.size_bytes, kind, as_text=True)
        return _contents(uri, data, part, artifact.size_bytes, kind, as_text=False)


def _range_of(uri: str, query: str) -> _Range:
    values = parse_qs(query)
    try:
        offset = int(values.get("offset", ["0"])[0])
        length = int(values.get("length", [str(_MOST_BYTES)])[0])
    except ValueError:
        raise MCPError(INVALID_PARAMS, "offset and length must be whole numbers", {"uri": uri}) from None
    if not 0 <= offset <= _FURTHEST or length < 1:
        words = f"offset must be from 0 to {_FURTHEST} and length at least 1"
        raise MCPError(INVALID_PARAMS, words, {"uri": uri})
    return _Range(offset, min(length, _MOST_BYTES))


def _log_lines(service: TaskService, task_id: str, owner: str) -> list[str]:
    service.head(task_id, owner=owner)
    lines: list[str] = []
    last = 0
    while page := service.store.logs(task_id, last, _LOG_PAGE):
        lines += (f"{iso(line.ts)} {line.stream} {line.level} {line.message}\n" for line in page)
        last = page[-1].seq
    return lines


def _text(uri: str, whole: bytes, part: _Range, kind: str) -> dict[str, Any]:
    data = whole[part.offset : part.offset + part.length]
    return _contents(uri, data, part, len(whole), kind, as_text=True)


def _contents(uri: str, data: bytes, part: _Range, size: int, kind: str, *, as_text: bool) -> dict[str, Any]:
    body: dict[str, Any] = {"uri": uri, "mimeType": kind}
    if as_text:
        # A range may cut a character in two: the cut one is left to the next range.
        text = data.decode("utf-8", "ignore") if len(data) < size else data.decode("utf-8", "replace")
        data = text.encode()
        body["text"] = text
    else:
        body["blob"] = base64.b64encode(data).decode()
    if len(data) < size:
        body["_meta"] = {"offset": part.offset, "length": len(data), "size": size}
    return {"contents": [body]}
