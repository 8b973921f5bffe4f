"""MCPResult: a tool's own word on how it went. Two-stage calls begin and end with one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, get_args

Kind = Literal["info", "success", "warning", "error"]

_FORM = {"success", "data", "messages"}
#: Fields that stand in `data` on the wire, and beside it where a framework wrote the record's own fields.
_BESIDE: dict[str, type | tuple[type, ...]] = {"job_id": str, "estimated_runtime_seconds": (int, float)}


@dataclass
class MCPResult:
    """Whether it went well, the data, and messages for people. The `add_…` methods can be chained.

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
        """What its error messages say, each on a line; what all say when none is an error."""
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
