"""The pages: what each shows. One module for each entry of the menu."""

from __future__ import annotations

from ..pages import Desk, Page
from .clients import Clients
from .overview import Overview
from .queues import Queues
from .workers import Workers


def pages(desk: Desk) -> list[Page]:
    return [
        *Overview(desk).pages,
        *Queues(desk).pages,
        *Workers(desk).pages,
        *Clients(desk).pages,
    ]
