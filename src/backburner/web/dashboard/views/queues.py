"""The queues: how long they are, who works on them, and a button that stops each."""

from __future__ import annotations

from typing import Any

from ..pages import Asked, Desk, Page
from ..slots import by_queue


class Queues:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    @property
    def pages(self) -> list[Page]:
        return [Page("/dashboard/queues", "queues.html", "queues", self.queues)]

    def queues(self, asked: Asked) -> dict[str, Any]:
        reading, settings = self._desk.reading, self._desk.app.settings
        found = reading.queues()["queues"]
        return {
            "queues": by_queue(found, reading.workers(asked.access)["workers"], []),
            "engines": {one["queue"]: settings.engine_of(one["queue"]) for one in found},
            "default_queue": settings.default_queue,
            "limits": settings.limits.of_running,
        }
