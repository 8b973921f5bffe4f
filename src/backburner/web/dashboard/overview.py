"""Pages: overview, queues, workers and clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...core.lifecycle import LEASED
from ..access import Access
from . import charts
from .pages import Dashboard, Page, PageRequest

#: Shown to roles that may not see hosts.
_ALL_HOSTS = "all hosts"


@dataclass(frozen=True, slots=True)
class Slot:
    """A busy worker. Without a task: another owner's; without a worker: run by an external engine."""

    worker: dict[str, Any] | None
    task: dict[str, Any] | None

    @property
    def name(self) -> str:
        return str((self.worker or self.task or {}).get("worker_id") or "")


@dataclass(slots=True)
class Host:
    """Workers of a queue on a host. `lost` ones send no heartbeats."""

    name: str
    busy: list[Slot] = field(default_factory=list)
    idle: list[dict[str, Any]] = field(default_factory=list)
    lost: list[dict[str, Any]] = field(default_factory=list)

    @property
    def workers(self) -> int:
        return len(self.idle) + len({slot.name for slot in self.busy if slot.worker})


@dataclass(slots=True)
class QueueSlots:
    queue: dict[str, Any]
    hosts: list[Host]

    @property
    def busy(self) -> int:
        return sum(len(host.busy) for host in self.hosts)

    @property
    def idle(self) -> int:
        return sum(len(host.idle) for host in self.hosts)

    @property
    def trouble(self) -> str:
        """The reason why no task starts; empty if there is none."""
        queue = self.queue
        if queue["paused_at"]:
            return "paused"
        if queue["max_length"] and queue["queued"] >= queue["max_length"]:
            return "full"
        return "unattended" if queue["queued"] and not (queue["workers"] or queue["running"]) else ""


def last_heard(workers: Sequence[dict[str, Any]]) -> str | None:
    """Return the latest heartbeat; None if it may not be seen."""
    return max((one["last_heartbeat"] for one in workers if one["last_heartbeat"]), default=None)


def by_queue(
    queues: Sequence[dict[str, Any]], workers: Sequence[dict[str, Any]], tasks: Sequence[dict[str, Any]]
) -> list[QueueSlots]:
    """Return each queue with its slots. `tasks` are the active ones."""
    found = {one["queue"]: QueueSlots(one, []) for one in queues}
    for queue, slots in found.items():
        slots.hosts = by_host(
            [one for one in workers if one["queue"] == queue], [one for one in tasks if one["queue"] == queue]
        )
    return list(found.values())


def by_host(workers: Sequence[dict[str, Any]], tasks: Sequence[dict[str, Any]]) -> list[Host]:
    """Return workers by host, and tasks of external engines, which have no worker here.

    Tasks tell their worker; a worker's own record may be older.
    """
    held: dict[str | None, list[dict[str, Any]]] = {}
    for task in reversed(tasks):
        held.setdefault(task["worker_id"], []).append(task)
    found: dict[str, Host] = {}
    for worker in workers:
        name = worker["host"] or _ALL_HOSTS
        host = found.setdefault(name, Host(name))
        if not worker["alive"]:
            host.lost.append(worker)
            continue
        own = held.pop(worker["worker_id"], [])
        host.busy += [Slot(worker, task) for task in own]
        if not own:
            others = worker["state"] != "idle" and worker["current_task_id"] is None
            host.busy += [Slot(worker, None)] if others else []
            host.idle += [] if others else [worker]
    left = [Slot(None, task) for some in held.values() for task in some]
    ordered = sorted(found.values(), key=lambda host: (not host.workers, host.name))
    return [*ordered, *([Host("", left)] if left else [])]


#: Shown questions, failures, and busy workers of a queue on a host.
_MAX_QUESTIONS, _MAX_FAILURES, _MAX_SLOTS = 5, 5, 8
#: Latest failed tasks that are read.
_READ_FAILURES = 20
#: Active tasks that a page shows at most.
_MAX_ACTIVE = 500
#: Figures of the overview and the states that each counts.
_FIGURES = (
    ("Waiting", ("queued",)),
    ("Running", ("scheduled", "running")),
    ("Asking", ("input_required",)),
    ("Stopping", ("cancel_requested", "cancelling")),
    ("Succeeded", ("succeeded",)),
    ("Failed", ("failed",)),
    ("Timed out", ("timed_out",)),
    ("Cancelled", ("cancelled",)),
    ("Expired", ("expired",)),
)


#: Sources of a client's time limits, as title and explanation.
_SOURCES = {
    "settings": ("Settings", "Set for this server (mcp.client_patience or mcp.patience_s)."),
    "learned": ("Learned", "This server has seen the client time out."),
    "table": ("Known", "From Backburner's table of known clients."),
    "default": ("Assumed", "Unknown client: a short limit is assumed."),
}


class Overview:
    """Overview, queues, workers and clients."""

    def __init__(self, dashboard: Dashboard) -> None:
        self._dashboard, self._app, self._records = dashboard, dashboard.app, dashboard.records
        self._statistics = charts.StatisticsCache(dashboard.app)

    @property
    def pages(self) -> list[Page]:
        return [
            Page("/", "overview.html", "overview", self.overview),
            Page("/dashboard/queues", "queues.html", "queues", self.queues),
            Page("/dashboard/workers", "workers.html", "workers", self.workers),
            Page("/dashboard/clients", "clients.html", "clients", self.clients),
        ]

    def overview(self, request: PageRequest) -> dict[str, Any]:
        operator, access = self._app.operator, request.access
        period = charts.PERIODS.get(request.query.get("last", ""), charts.PERIODS["hour"])
        ended = self._statistics.statistics(access.owner, period, self._app.store.now_ms())
        states = operator.states(access.owner)
        active = self._records.tasks(access, states=[*LEASED], limit=_MAX_ACTIVE)["tasks"]
        queues = by_queue(operator.queues(), self._dashboard.workers(access), active)
        return {
            "figures": [(title, names, sum(states[name] for name in names)) for title, names in _FIGURES],
            "any_tasks": any(states.values()),
            "period": period,
            "periods": charts.PERIODS.values(),
            "queues": queues,
            "deepest": max((one.queue["queued"] for one in queues), default=0),
            "most_slots": _MAX_SLOTS,
            **_charts(ended),
            **self._attention(access, states, ended),
            "troubled": [one for one in queues if one.trouble],
        }

    def _attention(self, access: Access, states: dict[str, int], ended: dict[str, Any]) -> dict[str, Any]:
        """Return open questions, oldest first, and failures in the shown period."""
        records = self._records
        asking: list[dict[str, Any]] = []
        if states["input_required"]:
            filters: dict[str, Any] = {"states": ["input_required"], "oldest_first": True}
            asking = records.tasks(access, **filters, limit=_MAX_QUESTIONS)["tasks"]
        failures: list[dict[str, Any]] = []
        count = charts.counts(ended["total"]["ended"])["failed"]
        if count:
            latest = records.tasks(access, states=["failed", "timed_out"], limit=_READ_FAILURES)["tasks"]
            failures = [one for one in latest if one["completed_at"] >= ended["since"]]
            failures.sort(key=lambda one: str(one["completed_at"]), reverse=True)
            if len(latest) < _READ_FAILURES:  # all failures are read, so this count is exact
                count = len(failures)
        return {
            "asking": asking,
            "asking_count": states["input_required"],
            "failures": failures[:_MAX_FAILURES],
            "failures_count": count,
        }

    def queues(self, request: PageRequest) -> dict[str, Any]:
        settings, found = self._app.settings, self._app.operator.queues()
        return {
            "queues": by_queue(found, self._dashboard.workers(request.access), []),
            "engines": {one["queue"]: settings.engine_of(one["queue"]) for one in found},
            "default_queue": settings.default_queue,
            "limits": settings.limits.of_running,
        }

    def workers(self, request: PageRequest) -> dict[str, Any]:
        settings, workers = self._app.settings, self._dashboard.workers(request.access)
        active = self._records.tasks(request.access, states=[*LEASED], limit=_MAX_ACTIVE)["tasks"]
        queues = {one["queue"] for one in workers} | {one["queue"] for one in active}
        return {
            "hosts": by_host(workers, active),
            "engines": {queue: settings.engine_of(queue) for queue in queues},
            "waiting": sum(one["queued"] for one in self._app.operator.queues()),
            "engine": settings.engine,
            "last_heard": last_heard,
        }

    def clients(self, request: PageRequest) -> dict[str, Any]:
        found = self._app.operator.clients()
        latest_first = sorted(found, key=lambda one: str(one["last_seen_at"]), reverse=True)
        return {"clients": latest_first, "sources": _SOURCES}


def _charts(ended: dict[str, Any]) -> dict[str, Any]:
    bounds = ended["bounds_s"]
    total = ended["total"]
    return {
        "throughput": charts.throughput(ended),
        "ended": charts.counts(total["ended"]),
        "latencies": [
            (name, title, charts.latency(ended, name), charts.spread_words(total[name], bounds))
            for name, title in (("wait", "Time to start"), ("run", "Time to run"))
        ],
        "rows": [
            {
                "since": one["since"],
                **charts.counts(one["ended"]),
                "wait": charts.spread_words(one["wait"], bounds),
                "run": charts.spread_words(one["run"], bounds),
            }
            for one in ended["stretches"]
            if one["ended"]
        ],
    }
