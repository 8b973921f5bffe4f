"""Checks messages against the JSON schemas of their protocol version, which are in spec/."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

_SPEC = Path(__file__).with_name("spec")
_CORE = {"2025-11-25": "mcp-2025-11-25", "2026-07-28": "mcp-2026-07-28"}

_RESULTS_2025 = {
    "initialize": ("InitializeResult",),
    "tools/list": ("ListToolsResult",),
    "tools/call": ("CallToolResult", "CreateTaskResult"),
    "tasks/get": ("GetTaskResult",),
    "tasks/cancel": ("CancelTaskResult",),
    "tasks/result": ("CallToolResult",),
    "tasks/list": ("ListTasksResult",),
    "resources/read": ("ReadResourceResult",),
    "resources/templates/list": ("ListResourceTemplatesResult",),
}
_RESULTS_2026 = {
    "server/discover": ("DiscoverResult",),
    "tools/list": ("ListToolsResult",),
    "tools/call": ("CallToolResult", "InputRequiredResult"),
    "resources/read": ("ReadResourceResult",),
    "resources/templates/list": ("ListResourceTemplatesResult",),
}
_TASK_RESULTS_2026 = {
    "tasks/get": "GetTaskResult",
    "tasks/update": "UpdateTaskResult",
    "tasks/cancel": "CancelTaskResult",
}
#: What callers of tools with `answer="handle"` are told besides (docs/decisions/0009).
_NOT_OF_MCP = ("notifications/tool_result",)


@cache
def validator(document: str, definition: str) -> Draft202012Validator:
    schema = json.loads((_SPEC / f"{document}.schema.json").read_text())
    return Draft202012Validator({"$defs": schema["$defs"], "$ref": f"#/$defs/{definition}"})


def complaint(document: str, definition: str, value: Any) -> str | None:
    error = best_match(validator(document, definition).iter_errors(value))
    return None if error is None else f"{definition}: {error.message[:300]} in {json.dumps(value)[:300]}"


class Wire:
    """The messages of one connection, and what is wrong with those of the server."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.complaints: list[str] = []
        self.notifications: list[dict[str, Any]] = []
        self.requests: list[dict[str, Any]] = []
        self._methods: dict[Any, str] = {}

    def sent(self, message: dict[str, Any]) -> None:
        if "method" in message and "id" in message:
            self._methods[message["id"]] = message["method"]

    def received(self, message: dict[str, Any]) -> None:
        if "method" in message and "id" in message:
            self.requests.append(message)
            self._note(complaint(_CORE[self.version], "ServerRequest", message))
        elif "method" in message:
            self.notifications.append(message)
            self._check_notification(message)
        elif "error" in message:
            name = "JSONRPCErrorResponse"
            self._note(complaint(_CORE[self.version], name, message))
        elif message.get("id") in self._methods:
            self.check_result(self._methods[message["id"]], message["result"])

    def of(self, method: str) -> list[dict[str, Any]]:
        """The parameters of the notifications of that method, as they came."""
        return [message["params"] for message in self.notifications if message["method"] == method]

    def check_result(self, method: str, result: dict[str, Any]) -> None:
        if self.version == "2026-07-28":
            if method == "tools/call" and result.get("resultType") == "task":
                self._note(complaint("ext-tasks", "CreateTaskResult", result))
                return
            if method in _TASK_RESULTS_2026:
                self._note(complaint("ext-tasks", _TASK_RESULTS_2026[method], result))
                inner = result.get("result")
                if inner is not None:
                    self._note(complaint(_CORE[self.version], "CallToolResult", inner))
                return
            names = _RESULTS_2026.get(method, ())
        else:
            names = _RESULTS_2025.get(method, ())
        found = [complaint(_CORE[self.version], name, result) for name in names]
        if names and None not in found:
            self._note(f"{method}: {found}")

    def _check_notification(self, message: dict[str, Any]) -> None:
        if message["method"] == "notifications/tool_result":
            return  # of the two-stage return, which no version of the protocol has
        if message["method"] == "notifications/tasks":
            self._note(complaint("ext-tasks", "TaskStatusNotification", message))
            return
        if message["method"] in _NOT_OF_MCP:
            return
        self._note(complaint(_CORE[self.version], "ServerNotification", message))

    def _note(self, complaint: str | None) -> None:
        if complaint is not None:
            self.complaints.append(complaint)
