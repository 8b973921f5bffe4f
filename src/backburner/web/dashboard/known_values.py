"""What filters complete: tools, queues, tags and owners that are known, or were met with lately."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from ...app import Backburner
from ...short_names import owner_name
from ..access import Access

#: So many of the latest tasks are looked at, and what is found is good for so long.
_LATEST = 500
_KEPT_S = 15.0
_MOST = 200

Known = dict[str, list[str]]


class KnownValues:
    """For whoever may see them. Blocks, now and then."""

    def __init__(self, app: Backburner) -> None:
        self._app = app
        self._kept: dict[str | None, tuple[float, Known]] = {}
        self._reading = threading.Lock()

    def of(self, access: Access) -> Known:
        with self._reading:
            now = time.monotonic()
            self._kept = {owner: one for owner, one in self._kept.items() if one[0] > now}
            if access.owner not in self._kept:
                self._kept[access.owner] = (now + _KEPT_S, self._found(access))
            return self._kept[access.owner][1]

    def _found(self, access: Access) -> Known:
        app = self._app
        tasks = app.service.list(owner=access.owner, limit=_LATEST).tasks
        owners = map(owner_name, app.store.count_owners()) if access.owner is None else ()
        return {
            "tools": _sorted([*(spec.name for spec in app.tools), *(task.tool_name for task in tasks)]),
            "queues": _sorted([*app.settings.queues, *(task.queue for task in tasks)]),
            "tags": _sorted(tag for task in tasks for tag in task.tags),
            "owners": _sorted(owners),
        }


def _sorted(names: Iterable[str]) -> list[str]:
    return sorted(set(names))[:_MOST]
