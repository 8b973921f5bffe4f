"""Queues, workers, tools, clients and webhooks of a server elsewhere, with the verbs of an Operator."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from ..errors import UnknownTool
from .connection import Connection


class RemoteOperator:
    """What an operator sees and does beside tasks; as much of it as the token's role allows."""

    def __init__(self, server: Connection) -> None:
        self._server = server

    def queues(self) -> list[dict[str, Any]]:
        return self._listed("/queues", "queues")

    def workers(self) -> list[dict[str, Any]]:
        return self._listed("/workers", "workers")

    def supervisor(self) -> dict[str, Any]:
        found: dict[str, Any] = self._server.get("/supervisor")
        return found

    def states(self, owner: str | None) -> dict[str, int]:
        found: dict[str, int] = self._server.get("/states", owner=owner)["states"]
        return found

    def runtimes(self, owner: str | None) -> list[dict[str, Any]]:
        return self._listed("/runtimes", "tools", owner=owner)

    def tools(self) -> list[dict[str, Any]]:
        return self._listed("/tools", "tools")

    def input_schema(self, tool_name: str) -> dict[str, Any]:
        schemas = {one["tool_name"]: one["input_schema"] for one in self.tools()}
        if tool_name not in schemas:
            raise UnknownTool(tool_name=tool_name, known=", ".join(sorted(schemas)) or "none")
        found: dict[str, Any] = schemas[tool_name]
        return found

    def clients(self) -> list[dict[str, Any]]:
        return self._listed("/clients", "clients")

    def webhooks(self, owner: str | None) -> list[dict[str, Any]]:
        return self._listed("/webhooks", "deliveries", owner=owner)

    def _listed(self, path: str, name: str, **query: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._server.get(path, **query)[name]
        return found

    def pause(self, queue: str) -> None:
        self._server.post(f"/queues/{quote(queue, safe='')}/pause")

    def resume(self, queue: str) -> None:
        self._server.post(f"/queues/{quote(queue, safe='')}/resume")

    def forget_clients(self, name: str | None) -> int:
        query = {} if name is None else {"name": name}
        return int(self._server.ask("DELETE", "/clients", query)["forgotten"])

    def retry_webhook(self, webhook_id: str, owner: str | None) -> bool:
        return bool(self._server.post(f"/webhooks/{quote(webhook_id, safe='')}/retry")["retried"])
