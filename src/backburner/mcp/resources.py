"""A task's result, logs and artifacts as MCP resources, readable in ranges.

    task://{task_id}/result                              the result, as JSON text
    task://{task_id}/logs                                the log, a line for each record
    task://{task_id}/artifacts                           the files made so far, as JSON
    task://{task_id}/artifacts/{artifact_id}/{name}      one file

`?offset=…&length=…` reads a range of bytes, and of a result `?path=…` the value at that path. `_meta` then
has the range and the total size. One read returns at most a mebibyte, and of text at most the client's limit
for results.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError
from mcp_types.jsonrpc import INVALID_PARAMS

from ..core.logs import text_of
from ..core.task import Artifact
from ..core.times import iso
from ..errors import ArtifactNotFound, ArtifactStorageError, BackburnerError, NoSuchPart
from ..service.tasks import TaskService
from .access import TaskAccess
from .dialects.server import Interceptor
from .errors import jsonrpc_errors
from .requests import RequestContext, as_dict, completed, is_modern, owner_of_request, validate
from .results import (
    PartContent,
    PartQuery,
    check_offset,
    media_type,
    parse_part,
    part_of_bytes,
    part_of_result,
)

SCHEME = "task://"
_LOG_PAGE = 5000

TEMPLATES: tuple[dict[str, Any], ...] = (
    {
        "uriTemplate": "task://{task_id}/result{?path,offset,length}",
        "name": "task-result",
        "description": "The result of a finished task, as JSON; with a path such as $.items[0:10] that part",
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


class TaskResources:
    """Reads `task://` URIs for the owner of the request."""

    def __init__(self, access: TaskAccess) -> None:
        self._access = access

    def interceptors(self) -> Mapping[str, Interceptor]:
        """Return the interceptors that add the tasks' resources to the server's."""
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
        """Return a `ReadResourceResult`. Raises MCPError for a URI that does not resolve, for whatever
        reason.
        """
        await self._access.ready()
        service = self._access.service
        try:
            contents = await service.aio.run(self._read, service, uri, owner_of_request())
        except NoSuchPart as error:
            raise MCPError(INVALID_PARAMS, str(error), {"uri": uri, "code": error.code}) from None
        except ArtifactStorageError:
            raise  # temporary, and reveals nothing about the file
        except (BackburnerError, OSError):
            # One message for missing, expired and other owners' resources.
            raise MCPError(INVALID_PARAMS, "Resource not found", {"uri": uri}) from None
        task_id, _, what = uri.removeprefix(SCHEME).partition("?")[0].partition("/")
        if what == "result":
            self._access.open_calls.close(task_id)
        return contents

    def _read(self, service: TaskService, uri: str, owner: str) -> dict[str, Any]:
        # Not with a URL parser: that lowers the host's case and fails on brackets.
        path, _, query = uri.removeprefix(SCHEME).partition("?")
        part = parse_part({name: values[0] for name, values in parse_qs(query).items()})
        of_text = part.at_most(self._access.presenter.text_bytes)
        task_id, *rest = path.split("/")
        if part.path is not None and rest != ["result"]:
            raise NoSuchPart(path=part.path, reason="only results have paths")
        match rest:
            case ["result"]:
                outcome = service.result(task_id, owner=owner)
                return _text(uri, part_of_result(outcome, of_text, self._access.app.artifacts))
            case ["logs"]:
                text = "".join(_log_lines(service, task_id, owner)).encode()
                return _text(uri, part_of_bytes(text, of_text, "text/plain"))
            case ["artifacts"]:
                made = json.dumps(self._access.artifacts_of(task_id, owner), ensure_ascii=False).encode()
                return _text(uri, part_of_bytes(made, of_text, "application/json"))
            case ["artifacts", artifact_id, _, *_]:  # the name is only for display
                service.head(task_id, owner=owner)
                artifact = service.store.artifact(artifact_id)
                if artifact.task_id != task_id:
                    raise ArtifactNotFound(artifact_id=artifact_id)
                return self._read_file(uri, artifact, part, of_text)
        raise ArtifactNotFound(artifact_id=uri)

    def _read_file(self, uri: str, artifact: Artifact, part: PartQuery, of_text: PartQuery) -> dict[str, Any]:
        kind = media_type(artifact)
        is_text = kind == "application/json" or kind.startswith("text/")
        part = of_text if is_text else part
        check_offset(part, artifact.size_bytes)
        data = self._access.app.artifacts.read(artifact, part.offset, part.length)
        piece = PartContent(data, part.offset, artifact.size_bytes, kind)
        if is_text:
            return _text(uri, piece)
        blob = {"uri": uri, "mimeType": kind, "blob": base64.b64encode(piece.data).decode()}
        place = {**piece.place, "length": len(piece.data)}
        return {"contents": [blob if piece.is_whole else {**blob, "_meta": place}]}


def _log_lines(service: TaskService, task_id: str, owner: str) -> list[str]:
    lines: list[str] = []
    cursor, more = None, True
    while more:
        page = service.logs(task_id, owner=owner, cursor=cursor, limit=_LOG_PAGE)
        lines += (f"{iso(line.ts)} {line.stream} {line.level} {text_of(line)}\n" for line in page.lines)
        cursor, more = page.next_cursor, page.truncated
    return lines


def _text(uri: str, piece: PartContent) -> dict[str, Any]:
    body: dict[str, Any] = {"uri": uri, "mimeType": piece.kind, "text": piece.text}
    return {"contents": [body if piece.is_whole else {**body, "_meta": piece.place}]}
