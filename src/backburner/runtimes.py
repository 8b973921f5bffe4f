"""How long each tool's latest successes took."""

from __future__ import annotations

from statistics import median, quantiles
from typing import Any

from .service import TaskService
from .store import Store

#: The tools that are told of are those of so many of the latest tasks.
_LATEST = 500


def runtimes(service: TaskService, owner: str | None) -> list[dict[str, Any]]:
    """Of the tools that an owner has used lately, or with None anybody. Everyone's runs of these count."""
    known = {task.tool_name for task in service.list(owner=owner, limit=_LATEST).tasks}
    found = [_of_tool(service.store, name) for name in sorted(known)]
    return [one for one in found if one is not None]


def _of_tool(store: Store, tool_name: str) -> dict[str, Any] | None:
    took = [run.seconds for run in store.runtimes(tool_name)]
    if not took:
        return None
    slow = took[0] if len(took) == 1 else quantiles(took, n=100, method="inclusive")[94]
    return {"tool_name": tool_name, "runs": len(took), "median_s": median(took), "p95_s": slow}
