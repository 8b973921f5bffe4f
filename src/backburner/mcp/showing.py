"""A result as its client can take it: whole, or its beginning, end and shape. Here it is decided which.

Two things are limited: how many tokens of text a model is given to read, by a cheap count, and how many bytes
a client is sent at all (docs/decisions/0029). What a tool with an output schema gave as structured content is
always whole: clients hold it against the schema, and would take nothing less (docs/decisions/0020). Only what
stands beside it is shortened.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from ..artifacts import ArtifactStore
from ..config import Settings
from ..errors import ArtifactStorageError
from ..mcp_result import MCPResult
from ..result_parts import (
    large_result,
    left_out,
    part_of,
    put_back,
    stand_in,
    text_in,
    unfolded_result,
)
from ..service import TaskResult
from ..task import Artifact, Task
from .links import Link, Links, artifact_uri, media_type, result_uri


@dataclass(frozen=True)
class Client:
    """Whom a request is answered to."""

    name: str = ""
    version: str = ""
    over_http: bool = False


#: The client of the request that is being answered.
CLIENT: ContextVar[Client] = ContextVar("backburner_client", default=Client())  # noqa: B039

#: However large a result is.
ANY = None
#: What a token is taken for: about that of English and of JSON, whichever model counts.
_BYTES_OF_TOKEN = 4
_HOW_TO_READ = "a path such as $.items[0:10], or offset and length in bytes"
_OUT_OF_REACH = object()
#: Why the file of a result cannot be read: it is gone, or its storage is away.
_NOT_READABLE = (OSError, ArtifactStorageError)
_STRUCTURED = "structuredContent"
#: The types of blocks that a model cannot read as text.
_BLOCKS = ("image", "audio", "resource")
_OURS = "backburner*"
#: The largest result that a client takes, in bytes, by its name. Of others the setting tells.
_LARGEST: tuple[tuple[str, int | None], ...] = (
    ("claude-ai", 150_000),  # claude.com/docs/connectors/faq; Claude Code keeps what is larger in a file
    (_OURS, ANY),
)
#: Of all others. The Python SDK's client takes no event over HTTP that is larger than a mebibyte.
_OVER_HTTP, _OVER_STDIO = 1_000_000, 4_000_000


def most_tokens(asking: Client, settings: Settings) -> int | None:
    """The longest result that a client is given whole; None: any.

    First what `client_result_tokens` says of it, then `result_tokens`; our own clients read all.
    """
    usual = settings.mcp.result_tokens or ANY
    own = fnmatchcase(asking.name.casefold(), _OURS)
    return _chosen(settings.mcp.client_result_tokens, asking, ANY if own else usual)


def most_bytes(asking: Client, settings: Settings) -> int | None:
    """How much a client can be sent as one result; None: any.

    First what `client_result_bytes` says of it, then what is known of clients by that name, then
    `whole_result_bytes`.
    """
    usual = settings.mcp.whole_result_bytes
    if usual is None:
        usual = _OVER_HTTP if asking.over_http else _OVER_STDIO
    name = asking.name.casefold()
    known = next((largest for pattern, largest in _LARGEST if fnmatchcase(name, pattern)), usual)
    return _chosen(settings.mcp.client_result_bytes, asking, known)


def _chosen(table: Mapping[str, int | str], asking: Client, otherwise: int | None) -> int | None:
    """What a table of the settings says of a client."""
    for client, chosen in table.items():
        pattern, _, version = client.partition("@")
        named = fnmatchcase(asking.name.casefold(), pattern.casefold())
        if named and fnmatchcase(asking.version, version or "*"):
            return ANY if isinstance(chosen, str) else chosen
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


def value_result(value: Any) -> dict[str, Any]:
    """A `CallToolResult` for the plain value that a function returned."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    structured = value if isinstance(value, dict) else {"result": value}
    return {"content": [text_block(text)], "structuredContent": structured, "isError": False}


@dataclass(frozen=True)
class Showing:
    """Shows the results of tasks that succeeded to a client that takes so many tokens and bytes.

    `reading_tool` is one by which it can read parts of them, if there is one.
    """

    links: Links
    files: ArtifactStore
    most_tokens: int | None
    most_bytes: int | None
    reading_tool: str = ""

    @property
    def text_bytes(self) -> int | None:
        """How long a text may be for it."""
        return None if self.most_tokens is None else _BYTES_OF_TOKEN * self.most_tokens

    @property
    def shows_all(self) -> bool:
        """Whether the client takes a result of any size."""
        return self.most_tokens is None and self.most_bytes is None

    def result(self, outcome: TaskResult, *, typed: bool) -> dict[str, Any]:
        """The `CallToolResult` of a task; `typed` is one whose tool has an output schema."""
        artifacts = {artifact.artifact_id: artifact for artifact in outcome.artifacts}
        value = self._read(outcome.task, artifacts, anyway=typed)
        if value is _OUT_OF_REACH:
            return self._preview(outcome.task, artifacts, outcome.task.result)
        is_result = outcome.task.result_kind == "call_tool_result"
        result = dict(value) if is_result else value_result(value)
        others = _links(artifacts, without=_ids_in(result["content"], artifacts))
        bare_bytes, part_bytes = _sizes(result, artifacts)
        # What a typed tool gave as data is whole in any case: then only a text of such a length is too much.
        text_bytes = _text_bytes(_without(result, _STRUCTURED) if typed else result)
        if not self._fits(text_bytes, bare_bytes):
            preview = self._preview(outcome.task, artifacts, _stand_in(outcome, value))
            return {**_without(preview, _STRUCTURED), **_only(result, _STRUCTURED)} if typed else preview
        linked = {**result, "content": _linked(result["content"], artifacts)}
        if self._fits(text_bytes, bare_bytes + part_bytes):
            with contextlib.suppress(*_NOT_READABLE):
                linked = put_back(result, artifacts, self.files)
        return {**linked, "content": [*linked["content"], *others]}

    def value(self, outcome: TaskResult) -> tuple[Any, list[dict[str, Any]]]:
        """What the tool returned, as JSON for a model to read, and the blocks of it that are no text."""
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
        """What the tool returned, unless it cannot be read, or is too large and not wanted `anyway`."""
        large = large_result(task, artifacts.values())
        # Both forms of a result are in it, so that each may be half as long.
        if large is not None and not anyway and not self._fits(large.size_bytes // 2, large.size_bytes):
            return _OUT_OF_REACH
        try:
            return unfolded_result(task, artifacts, self.files)
        except _NOT_READABLE:
            return _OUT_OF_REACH

    def _fits(self, text_bytes: int, sent_bytes: int) -> bool:
        is_short = self.text_bytes is None or text_bytes <= self.text_bytes
        return is_short and (self.most_bytes is None or sent_bytes <= self.most_bytes)

    # -- what is too large

    def _where(self, task: Task, kept: Mapping[str, Any], link: Link | None = None) -> dict[str, Any]:
        """What stands for a result, with the address of all of it; around it what its tool itself said."""
        shown = {key: part for key, part in kept.items() if key not in ("rest", "said")}
        shown["resource"] = result_uri(task.task_id)
        if self.reading_tool:
            shown["read_with"] = f"{self.reading_tool}: {_HOW_TO_READ}"
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
            f"Read any part of it with {self.reading_tool} of task_id {task.task_id} and {_HOW_TO_READ},"
            " or as this resource:"
        )
        lines = [
            f"The result is long, {size} bytes or about {size // _BYTES_OF_TOKEN} tokens, so these are its"
            " beginning and its end.",
            *([f"Its shape: {kept['shape']}"] if "shape" in kept else []),
            by_tool if self.reading_tool else "All of it can be read in parts, as this resource:",
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
    """What stands for a result: as its runner kept it, or made now of one that the store has whole."""
    if large_result(outcome.task, outcome.artifacts) is not None:
        kept: dict[str, Any] = outcome.task.result
        return kept
    text = json.dumps(value, ensure_ascii=False)
    return stand_in(value, text, outcome.task.result_kind, size_bytes=len(text.encode()))


def _ends(kept: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The beginning and the end of a result that stands for itself no more."""
    head, tail = str(kept["preview"]), str(kept.get("tail") or "")
    return [text_block(head), *([text_block(left_out(head, tail, kept["size_bytes"]))] if tail else [])]


def _text_bytes(result: Mapping[str, Any]) -> int:
    """How long what a model reads of a result is: its texts or its data, since hosts show one of them."""
    texts = sum(len(text.encode()) for block in result["content"] if (text := text_in(block)) is not None)
    data = len(json.dumps(result[_STRUCTURED], ensure_ascii=False).encode()) if _STRUCTURED in result else 0
    return max(texts, data)


def _linked(content: Iterable[Mapping[str, Any]], artifacts: Mapping[str, Artifact]) -> list[dict[str, Any]]:
    """The blocks, with links in the places of those whose contents are kept aside."""
    parts = ((block, part_of(block, artifacts)) for block in content)
    return [dict(block) if part is None else resource_link(part) for block, part in parts]


def _only(result: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {key: result[key]} if key in result else {}


def _without(result: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: part for name, part in result.items() if name != key}


def _links(artifacts: Mapping[str, Artifact], *, without: Iterable[str]) -> list[dict[str, Any]]:
    """Links to the files that the tool made."""
    left_out = set(without)
    made = (artifact for artifact in artifacts.values() if artifact.kind != "result")
    return [resource_link(artifact) for artifact in made if artifact.artifact_id not in left_out]


def _ids_in(content: Iterable[Mapping[str, Any]], artifacts: Mapping[str, Artifact]) -> list[str]:
    parts = (part_of(block, artifacts) for block in content)
    return [part.artifact_id for part in parts if part is not None]


def _sizes(result: Mapping[str, Any], artifacts: Mapping[str, Artifact]) -> tuple[int, int]:
    """How large a result is on its way, without what is kept aside; and how large that is.

    An MCPResult is sent once more, at the top level of the result.
    """
    said = MCPResult.in_tool_result(result)
    forms = (result["content"], result.get(_STRUCTURED), None if said is None else said.to_dict())
    bare = sum(len(json.dumps(form, ensure_ascii=False).encode()) for form in forms)
    parts = (artifacts[artifact_id].size_bytes for artifact_id in _ids_in(result["content"], artifacts))
    return bare, sum(4 * size // 3 for size in parts)
