"""The workers: where they are, when they were last heard, and what they run."""

from __future__ import annotations

from typing import Any

from ....lifecycle import LEASED
from ..pages import Asked, Desk, Page
from ..slots import hosts, last_heard
from .overview import MOST_UNDER_WAY


class Workers:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    @property
    def pages(self) -> list[Page]:
        return [Page("/dashboard/workers", "workers.html", "workers", self.workers)]

    def workers(self, asked: Asked) -> dict[str, Any]:
        reading, settings = self._desk.reading, self._desk.app.settings
        workers = reading.workers(asked.access)["workers"]
        under_way = reading.tasks(asked.access, states=[*LEASED], limit=MOST_UNDER_WAY)["tasks"]
        queues = {one["queue"] for one in workers} | {one["queue"] for one in under_way}
        return {
            "hosts": hosts(workers, under_way),
            "engines": {queue: settings.engine_of(queue) for queue in queues},
            "waiting": sum(one["queued"] for one in reading.queues()["queues"]),
            "engine": settings.engine,
            "last_heard": last_heard,
        }
