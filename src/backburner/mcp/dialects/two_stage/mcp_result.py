"""MCPResult: what a two-stage call says at its start and at its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

Kind = Literal["info", "success", "warning", "error"]


@dataclass
class MCPResult:
    """Whether it went well, the data, and messages for people. The `add_…` methods can be chained.

    `job_id` and `estimated_runtime_seconds` are part of `data` on the wire.
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

    def to_dict(self) -> dict[str, Any]:
        """`{success, data, messages}`: the form on the wire."""
        extra = {"job_id": self.job_id, "estimated_runtime_seconds": self.estimated_runtime_seconds}
        known = {key: value for key, value in extra.items() if value is not None}
        return {"success": self.success, "data": {**known, **self.data}, "messages": list(self.messages)}
