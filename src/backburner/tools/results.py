"""MCPResult, and splitting of large results into artifacts."""

from __future__ import annotations

import base64
import binascii
import json
import mimetypes
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Literal, Self, get_args

from ..core.json_text import shape
from ..core.task import Artifact, ResultKind, Task
from ..store.artifacts import ArtifactReader

Kind = Literal["info", "success", "warning", "error"]

_FORM = {"success", "data", "messages"}
#: Fields that stand in `data` on the wire, and beside it where a framework wrote the record's own fields.
_BESIDE: dict[str, type | tuple[type, ...]] = {"job_id": str, "estimated_runtime_seconds": (int, float)}


@dataclass
class MCPResult:
    """Result of a tool: success, data, and messages for people. The `add_…` methods can be chained.

    A tool that returns one with `success=False` has failed, as if it had raised. `job_id` and
    `estimated_runtime_seconds` are part of `data` on the wire.
    """

    success: bool = True
    data: dict[str, Any] = field(default_factory=dict)
    messages: list[dict[str, str]] = field(default_factory=list)
    job_id: str | None = None
    estimated_runtime_seconds: float | None = None

    def add_info(self, text: str, details: str | None = None) -> Self:
        return self._add("info", text, details)

    def add_success(self, text: str, details: str | None = None) -> Self:
        return self._add("success", text, details)

    def add_warning(self, text: str, details: str | None = None) -> Self:
        return self._add("warning", text, details)

    def add_error(self, text: str, details: str | None = None) -> Self:
        """Say what went wrong; the result is no success then."""
        self.success = False
        return self._add("error", text, details)

    def _add(self, kind: Kind, text: str, details: str | None) -> Self:
        message = {"type": kind, "text": text}
        self.messages.append({**message, "details": details} if details else message)
        return self

    @classmethod
    def error_result(
        cls, text: str, details: str | None = None, data: Mapping[str, Any] | None = None
    ) -> MCPResult:
        """A result that says only what went wrong."""
        return cls(success=False, data=dict(data or {})).add_error(text, details)

    @classmethod
    def of(cls, value: Any) -> MCPResult | None:
        """`value`, if it is an MCPResult or a dict of exactly its form; None if it is anything else.

        The form is that of `to_dict`: `success` is true or false, `data` an object, `messages` a list
        of `{type, text}` or `{type, text, details}` with a type that there is, and there is no other
        key. Raises TypeError for an MCPResult that is not in form itself.
        """
        if isinstance(value, MCPResult):
            if not _is_in_form({key: getattr(value, key) for key in (*_FORM, *_BESIDE)}):
                raise TypeError(
                    "This MCPResult is not in form: success is true or false, data a dict, and messages"
                    " are made by add_info, add_success, add_warning and add_error"
                )
            return value
        if not isinstance(value, Mapping) or not _is_in_form(value):
            return None
        messages = [{key: told for key, told in one.items() if told is not None} for one in value["messages"]]
        beside = {key: value[key] for key in _BESIDE if key in value}
        return cls(value["success"], dict(value["data"]), messages, **beside)

    @classmethod
    def in_tool_result(cls, result: Mapping[str, Any]) -> MCPResult | None:
        """The one that a `CallToolResult` carries: as its structured content, or as its only text."""
        if result.get("structuredContent") is not None:
            return cls.of(result["structuredContent"])
        match result.get("content"):
            case [{"type": "text", "text": str(text)}] if text.startswith("{") and '"success"' in text:
                try:
                    return cls.of(json.loads(text))
                except (ValueError, RecursionError):
                    return None
        return None

    @property
    def error_text(self) -> str:
        """Text of the error messages, one per line; of all messages when none is an error."""
        return "\n".join(self._told("text") or (one["text"] for one in self.messages))

    @property
    def error_details(self) -> str:
        """The details of its error messages."""
        return "\n\n".join(self._told("details"))

    def _told(self, part: str) -> list[str]:
        return [one[part] for one in self.messages if one["type"] == "error" and one.get(part)]

    def to_dict(self) -> dict[str, Any]:
        """`{success, data, messages}`: the form on the wire."""
        known = {key: getattr(self, key) for key in _BESIDE if getattr(self, key) is not None}
        return {"success": self.success, "data": {**known, **self.data}, "messages": list(self.messages)}


def _is_in_form(value: Mapping[str, Any]) -> bool:
    return (
        value.keys() - _BESIDE.keys() == _FORM
        and isinstance(value["success"], bool)
        and isinstance(value["data"], Mapping)
        and isinstance(value["messages"], list)
        and all(map(_is_message, value["messages"]))
        and all(value.get(key) is None or isinstance(value[key], kind) for key, kind in _BESIDE.items())
    )


def _is_message(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and {"type", "text"} <= value.keys() <= {"type", "text", "details"}
        and value["type"] in get_args(Kind)
        and isinstance(value["text"], str)
        and isinstance(value.get("details"), str | None)
    )


#: So much is shown of the beginning and of the end of what is too long.
_HEAD_CHARS, _TAIL_CHARS = 2_000, 1_000
#: What is smaller stays in the result.
_SMALLEST_PART = 4_096
_MEDIA_TYPE = re.compile(r"(application|audio|font|image|model|text|video)/[\w.+-]{1,80}")

#: Keeps bytes as an artifact, under a name and a kind, and gives its id.
Keep = Callable[[bytes, str, str], str]


def media_type_in(kind: str) -> str | None:
    """The media type that an artifact's kind is, if it is one: so it is with the parts of results."""
    return kind if _MEDIA_TYPE.fullmatch(kind) else None


# -- keeping ---------------------------------------------------------------------------------------


def kept_in_parts(result: Mapping[str, Any], too_many_bytes: int, keep: Keep) -> dict[str, Any]:
    """A `CallToolResult` without the largest of its parts, until it is so much smaller."""
    content = list(result["content"])
    by_size = sorted(
        ((len(_payload(block) or ""), index) for index, block in enumerate(content)), reverse=True
    )
    for size, index in by_size:
        if too_many_bytes <= 0 or size < _SMALLEST_PART:
            break
        block = content[index]
        data = _bytes_of(block)
        if data is not None:
            kind = _media_type(block)
            content[index] = _with(block, {"artifact_id": keep(data, _name(block, index, kind), kind)})
            too_many_bytes -= size
    return {**result, "content": content}


def stand_in(value: Any, text: str, kind: ResultKind, **where: Any) -> dict[str, Any]:
    """Return the preview of a result that is too large: beginning, end, shape, and its small parts.

    `text` is the result as JSON. In the preview, `rest` is a `CallToolResult` with its texts cut, and `said`
    the success and messages of an MCPResult.
    """
    told = value if isinstance(value, str) else text
    shown: dict[str, Any] = {"preview": told[:_HEAD_CHARS], "tail": _tail(told), "truncated": True, **where}
    if value is not None:
        shown["shape"] = shape(value)
    said = MCPResult.in_tool_result(value) if kind == "call_tool_result" else MCPResult.of(value)
    if said is not None:
        shown["said"] = {"success": said.success, "messages": said.messages}
    if kind == "call_tool_result":
        left = {key: part for key, part in value.items() if key != "structuredContent"}
        shown["rest"] = {**left, "content": shortened(value["content"])}
    return {key: part for key, part in shown.items() if len(json.dumps(part)) <= 10 * _HEAD_CHARS}


def shortened(content: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The blocks of a result with only the beginning and the end of its texts; what is no text stays."""
    left, kept, texts = _HEAD_CHARS, [], []
    for block in content:
        text = text_in(block)
        if text is None:
            kept.append(dict(block))
            continue
        texts.append(text)
        if left >= len(text):
            kept.append(dict(block))
        elif left > 0:
            kept.append({"type": "text", "text": text[:left]})
        left -= len(text)
    if left < 0:
        whole = "".join(texts)
        kept.append({"type": "text", "text": left_out(whole[:_HEAD_CHARS], _tail(whole), len(whole))})
    return kept


def left_out(head: str, tail: str, size: int) -> str:
    """Return the text after the beginning of a long one: how much is left out, and the end."""
    return f"[… about {size - len(head) - len(tail)} characters left out …]\n{tail}"


def _tail(text: str) -> str:
    return text[max(_HEAD_CHARS, len(text) - _TAIL_CHARS) :]


def text_in(block: Mapping[str, Any]) -> str | None:
    """The text of a block, or of the resource that is embedded in it; None of one without."""
    text = block.get("text") if block.get("type") == "text" else None
    if text is None and _is_text(block):
        text = _payload(block)
    return text if isinstance(text, str) else None


# -- finding again ---------------------------------------------------------------------------------


def whole_result(task: Task, artifacts: Iterable[Artifact], files: ArtifactReader) -> Any:
    """Return the tool's result with all parts in place. Raises as reading `files` does."""
    found = {artifact.artifact_id: artifact for artifact in artifacts}
    value = unfolded_result(task, found, files)
    is_result = task.result_kind == "call_tool_result" and isinstance(value, dict)
    return put_back(value, found, files) if is_result else value


def unfolded_result(task: Task, artifacts: Mapping[str, Artifact], files: ArtifactReader) -> Any:
    """Return the tool's result without the parts that were stored aside. Raises as reading `files` does."""
    large = large_result(task, artifacts.values())
    return task.result if large is None else json.loads(files.read(large))


def large_result(task: Task, artifacts: Iterable[Artifact]) -> Artifact | None:
    """The artifact that holds the result, when it was over the size limit."""
    if not isinstance(task.result, dict) or task.result.get("truncated") is not True:
        return None
    kept_in = task.result.get("artifact_id")
    return next((a for a in artifacts if a.kind == "result" and a.artifact_id == kept_in), None)


def put_back(
    result: Mapping[str, Any], artifacts: Mapping[str, Artifact], files: ArtifactReader
) -> dict[str, Any]:
    """A `CallToolResult` with its parts in their places. Raises as who reads `files` does."""
    content = []
    for block in result.get("content") or ():
        part = part_of(block, artifacts)
        if part is not None:
            data = files.read(part)
            block = _with(block, data.decode() if _is_text(block) else base64.b64encode(data).decode())
        content.append(block)
    return {**result, "content": content}


def part_of(block: Any, artifacts: Mapping[str, Artifact]) -> Artifact | None:
    """The artifact that holds what belongs into a block."""
    payload = _payload(block)
    return artifacts.get(payload.get("artifact_id", "")) if isinstance(payload, Mapping) else None


# -- blocks ----------------------------------------------------------------------------------------


def _holder(block: Any) -> tuple[Mapping[str, Any], str] | None:
    """Return the object inside a non-text block that holds its content, and the key of the content."""
    match block:
        case {"type": "image" | "audio", "data": _}:
            return block, "data"
        case {"type": "resource", "resource": {"blob": _} as resource}:
            return resource, "blob"
        case {"type": "resource", "resource": {"text": _} as resource}:
            return resource, "text"
    return None


def _payload(block: Any) -> Any:
    """The contents of a block that is no text: text, or what stands for it; None for a block without."""
    found = _holder(block)
    return None if found is None else found[0][found[1]]


def _with(block: Mapping[str, Any], payload: Any) -> dict[str, Any]:
    found = _holder(block)
    assert found is not None, "it has contents"
    holder, key = found
    filled = {**holder, key: payload}
    return filled if holder is block else {**block, "resource": filled}


def _is_text(block: Mapping[str, Any]) -> bool:
    found = _holder(block)
    return found is not None and found[1] == "text"


def _bytes_of(block: Mapping[str, Any]) -> bytes | None:
    """The contents as bytes, if exactly they can be had back from these."""
    payload = _payload(block)
    try:
        if _is_text(block):
            return payload.encode()  # type: ignore[no-any-return]
        data = base64.b64decode(payload, validate=True)
    except (AttributeError, TypeError, ValueError, binascii.Error):
        return None
    return data if base64.b64encode(data).decode() == payload else None


def _media_type(block: Mapping[str, Any]) -> str:
    holder, key = _holder(block) or ({}, "")
    told = str(holder.get("mimeType")).partition(";")[0].strip()
    if media_type_in(told):
        return told
    return "text/plain" if key == "text" else "application/octet-stream"


def _name(block: Mapping[str, Any], index: int, kind: str) -> str:
    """A name for people: of an embedded resource its own."""
    uri = (block.get("resource") or {}).get("uri")
    own = PurePosixPath(uri.partition("?")[0]).name if isinstance(uri, str) else ""
    if own.isprintable() and 0 < len(own) <= 80:
        return own
    return f"{block['type']}-{index + 1}{_ending(kind)}"


def _ending(kind: str) -> str:
    """Return the file name suffix for a media type, such as `.png`."""
    subtype = kind.partition("/")[2]
    own = f".{subtype}" if subtype.isalnum() and len(subtype) <= 5 else ""
    return mimetypes.guess_extension(kind, strict=False) or own
