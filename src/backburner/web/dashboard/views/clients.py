"""The clients that gave up on a call: how long each waits, and from where that is known."""

from __future__ import annotations

from typing import Any

from ..pages import Asked, Desk, Page

#: From where a client's clocks are known, as a person would say it.
_SOURCES = {
    "settings": ("Settings", "It is set for this server (mcp.client_patience or mcp.patience_s)."),
    "learned": ("Learned", "This server saw the client give up, and believes what it saw."),
    "table": ("Known", "It stands in the table of known clients that Backburner comes with."),
    "default": ("Assumed", "Nothing is known of this client yet, so the least is assumed."),
}


class Clients:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    @property
    def pages(self) -> list[Page]:
        return [Page("/dashboard/clients", "clients.html", "clients", self.clients)]

    def clients(self, asked: Asked) -> dict[str, Any]:
        found = self._desk.reading.clients()["clients"]
        latest_first = sorted(found, key=lambda one: str(one["last_seen_at"]), reverse=True)
        return {"clients": latest_first, "sources": _SOURCES}
