"""Results as MCP clients receive them: whole, previewed or in parts, with signed artifact links."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import mimetypes
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any, TypeVar
from urllib.parse import quote

from msgspec.structs import replace

from ..core.files import safe_file_name
from ..core.json_text import select, shape
from ..core.lifecycle import State
from ..core.task import Artifact, Task, TaskError
from ..core.times import iso
from ..errors import ArtifactNotFound, ArtifactStorageError, BackburnerError, NoSuchPart
from ..service.tasks import TaskResult
from ..settings import Settings
from ..store.artifacts import ArtifactStore
from ..store.protocol import Store
from ..tools.results import (
    MCPResult,
    large_result,
    left_out,
    media_type_in,
    part_of,
    put_back,
    stand_in,
    text_in,
    unfolded_result,
)
from .progress import token_of

T = TypeVar("T")

#: Base URL at which the current request reached the server; empty for other transports.
BASE_URL: ContextVar[str] = ContextVar("backburner_base_url", default="")

#: Returns the storage's own link to an artifact, for a media type and seconds, and its lifetime in seconds.
StorageLink = Callable[[Artifact, str, float], tuple[str, float] | None]


@dataclass(frozen=True, slots=True)
class Link:
    url: str
    expires_at: int


class ArtifactLinks:
    """Creates and checks signed artifact links.

    `base_url` is the public URL of the server; if empty, that of the current HTTP request. Links of the
    artifact storage take precedence.
    """

    def __init__(
        self, store: Store, base_url: str, link_s: float, of_storage: StorageLink | None = None
    ) -> None:
        from itsdangerous import URLSafeSerializer

        self._signer: Any = URLSafeSerializer(store.secret(), salt="backburner.artifact")
        self._link_s = link_s
        self._of_storage = of_storage
        self.base_url = base_url.rstrip("/")

    def to(self, artifact: Artifact, expires_at: int | None) -> Link | None:
        """Return a link that works until the task expires, and at most `link_s`."""
        now = int(time.time() * 1000)
        until = now + int(self._link_s * 1000)
        until = until if expires_at is None else min(until, expires_at)
        if self._of_storage is not None:
            own = self._of_storage(artifact, media_type(artifact), (until - now) / 1000)
            if own is not None:
                return Link(own[0], now + int(own[1] * 1000))
        base_url = self.base_url or BASE_URL.get()
        if not base_url:
            return None
        token = self._signer.dumps([artifact.artifact_id, until])
        path = f"/artifacts/{artifact.artifact_id}/{_named(artifact)}"
        return Link(f"{base_url}{path}?token={token}", until)

    def shown(self, task: Task, artifacts: Sequence[Artifact]) -> dict[str, Any]:
        """Return the artifacts of a task as its owner sees them."""
        made = [self._shown(artifact, task.expires_at) for artifact in artifacts]
        return {"task_id": task.task_id, "state": task.state, "artifacts": made}

    def _shown(self, artifact: Artifact, expires_at: int | None) -> dict[str, Any]:
        link = self.to(artifact, expires_at)
        return {
            "artifact_id": artifact.artifact_id,
            "name": artifact.name,
            "kind": artifact.kind,
            "size_bytes": artifact.size_bytes,
            "sha256": artifact.sha256,
            "resource": artifact_uri(artifact),
            "download_url": None if link is None else link.url,
            "expires_at": iso(expires_at if link is None else link.expires_at),
        }

    def check(self, artifact_id: str, token: str) -> None:
        """Raise ArtifactNotFound unless the token is valid for this artifact."""
        from itsdangerous import BadData

        try:
            signed_id, until = self._signer.loads(token)
        except (BadData, TypeError, ValueError):
            raise ArtifactNotFound(artifact_id=artifact_id) from None
        if signed_id != artifact_id or until < time.time() * 1000:
            raise ArtifactNotFound(artifact_id=artifact_id)


def result_uri(task_id: str) -> str:
    return f"task://{task_id}/result"


def artifact_uri(artifact: Artifact) -> str:
    return f"task://{artifact.task_id}/artifacts/{artifact.artifact_id}/{_named(artifact)}"


def _named(artifact: Artifact) -> str:
    """Return the last part of a URI, which is only for display: the id identifies the artifact."""
    return quote(safe_file_name(artifact.name), safe="")


def media_type(artifact: Artifact) -> str:
    return media_type_of(artifact.name, artifact.kind)


def media_type_of(name: str, kind: str) -> str:
    """Return an artifact's kind if it is a media type, or else guess from its name."""
    ending = PurePosixPath(name).suffix
    guessed = media_type_in(kind) or mimetypes.guess_type(f"file{ending}")[0]
    return guessed or "application/octet-stream"


@dataclass(frozen=True)
class Client:
    """Client of a request."""

    name: str = ""
    version: str = ""
    over_http: bool = False


#: The client of the current request.
CLIENT: ContextVar[Client] = ContextVar("backburner_client", default=Client())  # noqa: B039

#: No limit on the size of a result.
ANY = None
#: Bytes per token, about right for English and JSON with any model.
_BYTES_OF_TOKEN = 4
_HOW_TO_READ = "a path such as $.items[0:10], or offset and length in bytes"
_OUT_OF_REACH = object()
#: Errors of reading a result's file: it is gone, or its storage is unavailable.
_NOT_READABLE = (OSError, ArtifactStorageError)
_STRUCTURED = "structuredContent"
#: Types of content blocks other than text.
_BLOCKS = ("image", "audio", "resource")
_OURS = "backburner*"
#: Largest result in bytes by client name.
_LARGEST: tuple[tuple[str, int | None], ...] = (
    ("claude-ai", 150_000),  # claude.com/docs/connectors/faq; Claude Code keeps what is larger in a file
    (_OURS, ANY),
)
#: For all others. The Python SDK's HTTP client refuses events over a mebibyte.
_OVER_HTTP, _OVER_STDIO = 1_000_000, 4_000_000


def most_tokens(client: Client, settings: Settings) -> int | None:
    """Return the longest result that a client is given whole; None for no limit.

    `client_result_tokens` comes before `result_tokens`; Backburner's own clients have no limit.
    """
    usual = settings.mcp.result_tokens or ANY
    own = fnmatchcase(client.name.casefold(), _OURS)
    chosen = setting_for(settings.mcp.client_result_tokens, client, ANY if own else usual)
    return ANY if isinstance(chosen, str) else chosen


def most_bytes(client: Client) -> int | None:
    """Return the largest result that a client accepts; None for no limit."""
    usual = _OVER_HTTP if client.over_http else _OVER_STDIO
    name = client.name.casefold()
    return next((largest for pattern, largest in _LARGEST if fnmatchcase(name, pattern)), usual)


def setting_for(table: Mapping[str, T], client: Client, otherwise: T | None) -> T | None:
    """Return the value of the first `name` or `name@version` pattern in a settings table that matches."""
    for pattern, value in table.items():
        name, _, version = pattern.partition("@")
        named = fnmatchcase(client.name.casefold(), name.casefold())
        if named and fnmatchcase(client.version, version or "*"):
            return value
    return otherwise


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def resource_link(artifact: Artifact) -> dict[str, Any]:
    return {
        "type": "resource_link",
        "uri": artifact_uri(artifact),
        "name": artifact.name,
        "description": f"{artifact.kind}, sha256 {artifact.sha256}",
        "mimeType": media_type(artifact),
        "size": artifact.size_bytes,
    }


def value_result(value: Any, *, typed: bool = False) -> dict[str, Any]:
    """Return a `CallToolResult` for the plain value that a function returned.

    Text has structured content only if the tool is `typed`: some hosts show that in place of the text.
    """
    if isinstance(value, str) and not typed:
        return {"content": [text_block(value)], "isError": False}
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    structured = value if isinstance(value, dict) else {"result": value}
    return {"content": [text_block(text)], "structuredContent": structured, "isError": False}


@dataclass(frozen=True)
class ResultPresenter:
    """Presents results of succeeded tasks to a client with these limits.

    `read_tool` names the tool that reads parts of results, if there is one.
    """

    links: ArtifactLinks
    files: ArtifactStore
    most_tokens: int | None
    most_bytes: int | None
    read_tool: str = ""

    @property
    def text_bytes(self) -> int | None:
        """Longest text for the client, in bytes."""
        return None if self.most_tokens is None else _BYTES_OF_TOKEN * self.most_tokens

    @property
    def shows_all(self) -> bool:
        """True if the client accepts results of any size."""
        return self.most_tokens is None and self.most_bytes is None

    def result(self, outcome: TaskResult, *, typed: bool) -> dict[str, Any]:
        """Return the `CallToolResult` of a task; `typed` if its tool has an output schema."""
        artifacts = {artifact.artifact_id: artifact for artifact in outcome.artifacts}
        value = self._read(outcome.task, artifacts, anyway=typed)
        if value is _OUT_OF_REACH:
            return self._preview(outcome.task, artifacts, outcome.task.result)
        is_result = outcome.task.result_kind == "call_tool_result"
        result = dict(value) if is_result else value_result(value, typed=typed)
        others = _links(artifacts, without=_ids_in(result["content"], artifacts))
        bare_bytes, part_bytes = _sizes(result, artifacts)
        # Structured content of a typed tool is never cut, so only its text counts.
        text_bytes = _text_bytes(_without(result, _STRUCTURED) if typed else result)
        if not self._fits(text_bytes, bare_bytes):
            preview = self._preview(outcome.task, artifacts, _stand_in(outcome, value))
            if not typed:
                return preview
            data = {_STRUCTURED: result[_STRUCTURED]} if _STRUCTURED in result else {}
            return {**_without(preview, _STRUCTURED), **data}
        linked = {**result, "content": _linked(result["content"], artifacts)}
        if self._fits(text_bytes, bare_bytes + part_bytes):
            with contextlib.suppress(*_NOT_READABLE):
                linked = put_back(result, artifacts, self.files)
        return {**linked, "content": [*linked["content"], *others]}

    def value(self, outcome: TaskResult) -> tuple[Any, list[dict[str, Any]]]:
        """Return the tool's value as JSON for a model, and its content blocks other than text."""
        task = outcome.task
        if task.result_kind == "value":
            value = self._read(task, {artifact.artifact_id: artifact for artifact in outcome.artifacts})
            if value is _OUT_OF_REACH:
                return self._where(task, task.result), []
            size = len(json.dumps(value, ensure_ascii=False).encode())
            return (value if self._fits(size, size) else self._where(task, _stand_in(outcome, value))), []
        result = self.result(outcome, typed=False)
        structured, content = result.get(_STRUCTURED), result["content"]
        left = [block for block in content if block.get("type") not in _BLOCKS]
        blocks = [block for block in content if block.get("type") in _BLOCKS]
        return (left if structured is None else structured), blocks

    def _read(self, task: Task, artifacts: Mapping[str, Artifact], *, anyway: bool = False) -> Any:
        """Return the tool's value; `_OUT_OF_REACH` if unreadable, or too large and not wanted `anyway`."""
        large = large_result(task, artifacts.values())
        # The file has both forms of the result, each about half of it.
        if large is not None and not anyway and not self._fits(large.size_bytes // 2, large.size_bytes):
            return _OUT_OF_REACH
        try:
            return unfolded_result(task, artifacts, self.files)
        except _NOT_READABLE:
            return _OUT_OF_REACH

    def _fits(self, text_bytes: int, sent_bytes: int) -> bool:
        is_short = self.text_bytes is None or text_bytes <= self.text_bytes
        return is_short and (self.most_bytes is None or sent_bytes <= self.most_bytes)

    # -- previews

    def _where(self, task: Task, kept: Mapping[str, Any], link: Link | None = None) -> dict[str, Any]:
        """Return the preview with the result's URI, inside the MCPResult of the tool, if any."""
        shown = {key: part for key, part in kept.items() if key not in ("rest", "said")}
        shown["resource"] = result_uri(task.task_id)
        if self.read_tool:
            shown["read_with"] = f"{self.read_tool}: {_HOW_TO_READ}"
        if link is not None:
            shown["download_url"] = link.url
        return {**kept["said"], "data": shown} if "said" in kept else shown

    def _preview(
        self, task: Task, artifacts: Mapping[str, Artifact], kept: Mapping[str, Any]
    ) -> dict[str, Any]:
        large, uri = large_result(task, artifacts.values()), result_uri(task.task_id)
        link = self.links.to(large, task.expires_at) if large is not None else None
        size = kept["size_bytes"]
        by_tool = (
            f"Read any part of it with {self.read_tool} of task_id {task.task_id} and {_HOW_TO_READ},"
            " or as this resource:"
        )
        lines = [
            f"The result is long, {size} bytes or about {size // _BYTES_OF_TOKEN} tokens, so these are its"
            " beginning and its end.",
            *([f"Its shape: {kept['shape']}"] if "shape" in kept else []),
            by_tool if self.read_tool else "All of it can be read in parts, as this resource:",
            f"{uri}?offset=0&length=65536",
        ]
        if link is not None:
            lines += ["or downloaded:", link.url]
        rest = kept.get("rest") or {"content": _ends(kept), "isError": False}
        content = rest["content"]
        block = {
            "type": "resource_link",
            "uri": uri,
            "name": "result.json",
            "mimeType": "application/json",
            "size": kept["size_bytes"],
        }
        others = _links(artifacts, without=_ids_in(content, artifacts))
        shown = [text_block("\n".join(lines)), *_linked(content, artifacts), block, *others]
        return {**rest, "content": shown, _STRUCTURED: self._where(task, kept, link)}


def _stand_in(outcome: TaskResult, value: Any) -> dict[str, Any]:
    """Return the preview stored by the runner, or build one from the stored result."""
    if large_result(outcome.task, outcome.artifacts) is not None:
        kept: dict[str, Any] = outcome.task.result
        return kept
    text = json.dumps(value, ensure_ascii=False)
    return stand_in(value, text, outcome.task.result_kind, size_bytes=len(text.encode()))


def _ends(kept: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return text blocks with the beginning and the end of a result."""
    head, tail = str(kept["preview"]), str(kept.get("tail") or "")
    return [text_block(head), *([text_block(left_out(head, tail, kept["size_bytes"]))] if tail else [])]


def _text_bytes(result: Mapping[str, Any]) -> int:
    """Return the bytes that a model reads: texts or structured data, since hosts show one of them."""
    texts = sum(len(text.encode()) for block in result["content"] if (text := text_in(block)) is not None)
    data = len(json.dumps(result[_STRUCTURED], ensure_ascii=False).encode()) if _STRUCTURED in result else 0
    return max(texts, data)


def _linked(content: Iterable[Mapping[str, Any]], artifacts: Mapping[str, Artifact]) -> list[dict[str, Any]]:
    """Replace blocks whose content is stored as an artifact by resource links."""
    parts = ((block, part_of(block, artifacts)) for block in content)
    return [dict(block) if part is None else resource_link(part) for block, part in parts]


def _without(result: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: part for name, part in result.items() if name != key}


def _links(artifacts: Mapping[str, Artifact], *, without: Iterable[str]) -> list[dict[str, Any]]:
    """Return resource links to the files that the tool made."""
    left_out = set(without)
    made = (artifact for artifact in artifacts.values() if artifact.kind != "result")
    return [resource_link(artifact) for artifact in made if artifact.artifact_id not in left_out]


def _ids_in(content: Iterable[Mapping[str, Any]], artifacts: Mapping[str, Artifact]) -> list[str]:
    parts = (part_of(block, artifacts) for block in content)
    return [part.artifact_id for part in parts if part is not None]


def _sizes(result: Mapping[str, Any], artifacts: Mapping[str, Artifact]) -> tuple[int, int]:
    """Return the wire size of a result without stored parts, and the size of these in base64.

    An MCPResult is sent again at the top level of the result.
    """
    said = MCPResult.in_tool_result(result)
    forms = (result["content"], result.get(_STRUCTURED), None if said is None else said.to_dict())
    bare = sum(len(json.dumps(form, ensure_ascii=False).encode()) for form in forms)
    parts = (artifacts[artifact_id].size_bytes for artifact_id in _ids_in(result["content"], artifacts))
    return bare, sum(4 * size // 3 for size in parts)


def tool_raised(task: Task) -> bool:
    """Return whether the task failed because its tool raised."""
    return task.state is State.FAILED and task.error is not None and task.error.type == "tool_error"


def error_for_clients(task: Task, error: TaskError | None) -> TaskError | None:
    """Return an error as clients may see it.

    For attached tools only the message: their framework decides what clients see.
    """
    if error is None or task.result_kind == "value":
        return error
    return replace(error, exception="", details="")


def result_meta(task: Task) -> dict[str, Any]:
    """Return the `_meta` of a task's result: the token of its call, and the run time of its tool in ms."""
    if "wall_s" in task.metrics:
        duration = round(1000 * task.metrics["wall_s"])
    elif task.started_at is not None and task.completed_at is not None:
        duration = max(0, task.completed_at - task.started_at)  # it was killed
    else:
        duration = 0
    return {"progressToken": token_of(task), "duration": duration}


def reported_result(task: Task) -> dict[str, Any] | None:
    """Return the MCPResult with which a tool reported failure; None for one that raised."""
    return ((task.error.data if task.error else None) or {}).get("mcp_result")


def error_result(message: str, structured: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a `CallToolResult` for an error."""
    result: dict[str, Any] = {"content": [text_block(message)], "isError": True}
    return result if structured is None else {**result, "structuredContent": dict(structured)}


def failed_result(message: str, said: Any) -> dict[str, Any]:
    """Return a `CallToolResult` for a failed tool, with the MCPResult that it reported, if any."""
    result = error_result(message)
    if said is None:
        return result
    shown = value_result(said)
    return {**shown, **result, "content": [*result["content"], *shown["content"]]}


def error_as_result(error: BackburnerError, *, typed: bool = False) -> dict[str, Any]:
    """Return a BackburnerError as a result that a model can read.

    For a `typed` tool the details go to `_meta`: some clients validate even structured content of errors.
    """
    told = {"error": error.to_dict()}
    return {**error_result(str(error)), "_meta": told} if typed else error_result(str(error), told)


def call_tool_result(outcome: TaskResult, presenter: ResultPresenter, *, typed: bool) -> dict[str, Any]:
    """Return the `CallToolResult` of a task that succeeded, or whose tool raised."""
    task = outcome.task
    if task.error is not None and tool_raised(task):
        whole = (task.error.data or {}).get("result")
        result = dict(whole) if whole else failed_result(task.error.message, reported_result(task))
    else:
        assert task.state is State.SUCCEEDED, "only these have a result"
        result = presenter.result(outcome, typed=typed)
    return {**result, "_meta": {**(result.get("_meta") or {}), **result_meta(task)}}


#: Largest part in one read.
MOST_BYTES = 1 << 20
#: Largest file offset.
FURTHEST = (1 << 63) - 1
#: Largest result for paths, which need all of it in memory.
_MOST_FOR_PATHS = 64 << 20


@dataclass(frozen=True)
class PartQuery:
    """A requested part of a result: a byte range of all, or of the value at a path."""

    offset: int = 0
    length: int = MOST_BYTES
    path: str | None = None

    def at_most(self, most_bytes: int | None) -> PartQuery:
        return self if most_bytes is None else dataclasses.replace(self, length=min(self.length, most_bytes))


@dataclass(frozen=True)
class PartContent:
    """Bytes of a part and their position. `shape` describes the value at the path."""

    data: bytes
    offset: int
    size: int
    kind: str
    shape: str = ""

    @property
    def text(self) -> str:
        """The text without a character cut at its end, which the next part has."""
        return self.data.decode("utf-8", "ignore" if len(self.data) < self.size else "replace")

    @property
    def is_whole(self) -> bool:
        return len(self.data) == self.size

    @property
    def place(self) -> dict[str, int]:
        """Position in the whole; the next part begins at `offset` + `length`."""
        return {"offset": self.offset, "length": len(self.text.encode()), "size": self.size}


def part_of_bytes(data: bytes, part: PartQuery, kind: str, shape: str = "") -> PartContent:
    """Return a range of bytes. Raises NoSuchPart for an offset beyond the end."""
    check_offset(part, len(data))
    return PartContent(data[part.offset : part.offset + part.length], part.offset, len(data), kind, shape)


def check_offset(part: PartQuery, size: int) -> None:
    if part.offset > size:
        raise NoSuchPart(path=f"byte {part.offset}", reason=f"it is {size} bytes long")


def part_of_result(outcome: TaskResult, part: PartQuery, files: ArtifactStore) -> PartContent:
    """Return a part of the result as JSON; text at a path is returned as it is.

    Raises NoSuchPart, and OSError or ArtifactStorageError if the file of a large result cannot be read.
    """
    task = outcome.task
    large = large_result(task, outcome.artifacts)
    error = error_for_clients(task, task.error)
    value = task.result if error is None else {"error": error.to_dict()}
    if part.path is None:
        if large is None:
            return part_of_bytes(_json(value), part, "application/json")
        check_offset(part, large.size_bytes)
        data = files.read(large, part.offset, part.length)
        return PartContent(data, part.offset, large.size_bytes, "application/json")
    if large is not None:
        if large.size_bytes > _MOST_FOR_PATHS:
            reason = f"the result is {large.size_bytes} bytes long, and only its bytes can be read"
            raise NoSuchPart(path=part.path, reason=reason)
        value = json.loads(files.read(large))
    found = select(value, part.path)
    if isinstance(found, str):
        return part_of_bytes(found.encode(), part, "text/plain", shape(found))
    return part_of_bytes(_json(found), part, "application/json", shape(found))


def parse_part(asked: Mapping[str, Any]) -> PartQuery:
    """Return the part that `offset`, `length` and `path` request. Raises NoSuchPart."""
    try:
        offset, length = int(asked.get("offset") or 0), int(asked.get("length") or MOST_BYTES)
    except ValueError:
        raise NoSuchPart(path="such range", reason="offset and length must be whole numbers") from None
    if not 0 <= offset <= FURTHEST or length < 1:
        reason = f"offset must be from 0 to {FURTHEST} and length at least 1"
        raise NoSuchPart(path="such range", reason=reason)
    return PartQuery(offset, min(length, MOST_BYTES), asked.get("path"))


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()
