"""The tools: what there is to be called, and a form that starts a task of one."""

from __future__ import annotations

from typing import Any

from ....records import tool_record
from ....tools import ToolSpec
from ..pages import Asked, Desk, Page


class Tools:
    def __init__(self, desk: Desk) -> None:
        self._desk, self._app = desk, desk.app

    @property
    def pages(self) -> list[Page]:
        return [
            Page("/dashboard/tools", "tools.html", "tools", self.tools),
            Page("/dashboard/tools/{name:path}", "tool.html", "tools", self.tool),
        ]

    def tools(self, asked: Asked) -> dict[str, Any]:
        return {"tools": [self._shown(spec) for spec in self._app.tools]}

    def tool(self, asked: Asked) -> dict[str, Any]:
        """Raises UnknownTool."""
        spec = self._app.tools.get(asked.path["name"])
        return {
            "tool": self._shown(spec),
            "schema": _with_secrets_hidden(spec),
            "queues": list(self._app.settings.queues),
        }

    def _shown(self, spec: ToolSpec) -> dict[str, Any]:
        first, _, rest = spec.description.strip().partition("\n")
        limits = {
            "running": spec.max_running,
            "per_minute": spec.max_starts_per_minute,
            "per_key": (spec.max_running_per_key or 1) if spec.concurrency_key else None,
        }
        about = {"title": spec.title, "summary": first.strip(), "rest": rest.strip(), "limits": limits}
        return {**tool_record(spec, self._app.settings), **about}


def _with_secrets_hidden(spec: ToolSpec) -> dict[str, Any]:
    """The schema for a form: what is typed for a secret cannot be read over a shoulder."""
    schema = spec.input_schema
    fields = schema.get("properties")
    if not spec.secrets or not isinstance(fields, dict):
        return schema
    shown = {
        name: {**one, "format": "password"} if name in spec.secrets and isinstance(one, dict) else one
        for name, one in fields.items()
    }
    return {**schema, "properties": shown}
