"""The pages: what each shows. One module for each entry of the menu."""

from __future__ import annotations

from ..pages import Desk, Page
from .overview import Overview
from .task_list import TaskList
from .tools import Tools


def pages(desk: Desk) -> list[Page]:
    return [*Overview(desk).pages, *TaskList(desk).pages, *Tools(desk).pages]
