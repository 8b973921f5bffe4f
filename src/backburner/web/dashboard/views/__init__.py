"""The pages: what each shows. One module for each entry of the menu."""

from __future__ import annotations

from ..pages import Desk, Page
from .clients import Clients
from .overview import Overview
from .queues import Queues
from .task import OneTask
from .task_list import TaskList
from .tools import Tools
from .workers import Workers

_VIEWS = (Overview, TaskList, OneTask, Tools, Queues, Workers, Clients)


def pages(desk: Desk) -> list[Page]:
    return [page for view in _VIEWS for page in view(desk).pages]
