"""The pages: what each shows. One module for each entry of the menu."""

from __future__ import annotations

from ..pages import Desk, Page
from .overview import Overview
from .task import OneTask


def pages(desk: Desk) -> list[Page]:
    return [
        *Overview(desk).pages,
        *OneTask(desk).pages,
    ]
