"""The first page: how much there is to do, how it goes, and who works on it."""

from __future__ import annotations

from typing import Any

from ..pages import Asked, Desk, Page


class Overview:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    @property
    def pages(self) -> list[Page]:
        return [Page("/", "overview.html", "overview", self.overview)]

    def overview(self, asked: Asked) -> dict[str, Any]:
        return self._desk.reading.overview(asked.access)
