"""Pages: overview, queues, workers and clients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ...app import Backburner
from ...core.lifecycle import LEASED
from ...service.monitoring import merge_statistics
from ..access import Access
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
        self._statistics = StatisticsCache(dashboard.app)

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
        period = PERIODS.get(request.query.get("last", ""), PERIODS["hour"])
        ended = self._statistics.statistics(access.owner, period, self._app.store.now_ms())
        states = operator.states(access.owner)
        active = self._records.tasks(access, states=[*LEASED], limit=_MAX_ACTIVE)["tasks"]
        queues = by_queue(operator.queues(), self._dashboard.workers(access), active)
        return {
            "figures": [(title, names, sum(states[name] for name in names)) for title, names in _FIGURES],
            "any_tasks": any(states.values()),
            "period": period,
            "periods": PERIODS.values(),
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
        count = counts(ended["total"]["ended"])["failed"]
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
        "throughput": throughput(ended),
        "ended": counts(total["ended"]),
        "latencies": [
            (name, title, latency(ended, name), spread_words(total[name], bounds))
            for name, title in (("wait", "Time to start"), ("run", "Time to run"))
        ],
        "rows": [
            {
                "since": one["since"],
                **counts(one["ended"]),
                "wait": spread_words(one["wait"], bounds),
                "run": spread_words(one["run"], bounds),
            }
            for one in ended["stretches"]
            if one["ended"]
        ],
    }


# -- charts

HEIGHT = 120.0
#: Width of a column, and the gap within it.
_COLUMN, _GAP = 10.0, 2.0
#: Smallest height of a bar, and height of the median mark.
_MIN_BAR, _MARK = 2.0, 3.0
#: Steps of a time scale.
_STEPS = 4
#: Upper ends of scales, to be multiplied by powers of ten.
_TOPS = (2, 4, 6, 8, 10, 12, 16, 20, 30, 40, 50, 60, 80, 100)
#: Series of the throughput chart, from bottom to top.
KINDS = {
    "succeeded": ("succeeded",),
    "failed": ("failed", "timed_out"),
    "other": ("cancelled", "expired"),
}
_WORDS = {"succeeded": "succeeded", "failed": "failed", "other": "cancelled or expired"}


@dataclass(frozen=True, slots=True)
class Bar:
    """`kind` is its CSS class."""

    kind: str
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Column:
    """One interval: its bars, and a description."""

    x: float
    since: str
    said: str
    bars: Sequence[Bar]

    @property
    def title(self) -> str:
        return f"{clock(self.since)} UTC: {self.said}"


@dataclass(frozen=True, slots=True)
class Chart:
    """`labels` belong to `lines`, from top to bottom."""

    width: float
    columns: Sequence[Column]
    labels: Sequence[str]
    lines: Sequence[float]
    height: float = HEIGHT
    column: float = _COLUMN
    bar: float = _COLUMN - _GAP
    gap: float = _GAP / 2


def clock(time: str) -> str:
    return f"{datetime.fromisoformat(time):%a %H:%M}"


def counts(ended: dict[str, int]) -> dict[str, int]:
    """Return completions by series."""
    return {kind: sum(ended.get(state, 0) for state in states) for kind, states in KINDS.items()}


# -- throughput ------------------------------------------------------------------------------------


def throughput(statistics: dict[str, Any]) -> Chart:
    stretches = statistics["stretches"]
    most = max((sum(one["ended"].values()) for one in stretches), default=0)
    top = _scale_end(most)
    columns = [
        Column(
            n * _COLUMN, one["since"], _in_words(counts(one["ended"])), [*_stack(counts(one["ended"]), top)]
        )
        for n, one in enumerate(stretches)
        if one["ended"]
    ]
    labels = [_brief(top), _brief(top // 2), "0"] if columns else []
    return Chart(len(stretches) * _COLUMN, columns, labels, [0, HEIGHT / 2, HEIGHT])


def _stack(counted: dict[str, int], top: int) -> Iterator[Bar]:
    y = HEIGHT
    for kind, count in counted.items():
        if count:
            height = max(_MIN_BAR, HEIGHT * count / top)
            y = max(0.0, y - height)
            yield Bar(kind, round(y, 2), round(height, 2))


def _in_words(counted: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {_WORDS[kind]}" for kind, count in counted.items() if count)


def _scale_end(most: int) -> int:
    """Return the smallest even scale end that is not below `most`."""
    size = 1
    while most > _TOPS[-1] * size:
        size *= 10
    return next(figure * size for figure in _TOPS if figure * size >= most)


def _brief(value: int) -> str:
    for size, unit in ((1_000_000, "M"), (1000, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return str(value)


# -- latency ---------------------------------------------------------------------------------------


def latency(statistics: dict[str, Any], of: str) -> Chart:
    """Chart the median and 95th percentile of `wait` or `run`; the y axis counts bounds."""
    bounds: list[float] = statistics["bounds_s"]
    spans = [
        (n, one["since"], _step(one[of]["half_within_s"], bounds), _step(one[of]["most_within_s"], bounds))
        for n, one in enumerate(statistics["stretches"])
        if any(one[of]["counts"])
    ]
    width = len(statistics["stretches"]) * _COLUMN
    if not spans:
        return Chart(width, [], [], [])
    low, step, count = _scale(
        min(half for _, _, half, _ in spans), max(most for *_, most in spans), len(bounds)
    )

    def y(at: int) -> float:
        return round(HEIGHT * (1 - (at - low) / (step * count)), 2)

    columns = []
    for n, since, half, most in spans:
        reach = [Bar("reach", y(most), y(half) - y(most))] if most > half else []
        said = f"median {within(half, bounds)}, 95 % {within(most, bounds)}"
        mark = Bar("half", min(y(half), HEIGHT - _MARK), _MARK)
        columns.append(Column(n * _COLUMN, since, said, [*reach, mark]))
    steps = [low + step * n for n in range(count, -1, -1)]
    return Chart(width, columns, [_bound(at, bounds) for at in steps], [y(at) for at in steps])


def _scale(first: int, last: int, longest: int) -> tuple[int, int, int]:
    """Return the scale's first bound, bounds per label, and number of labels, with a margin on both ends."""
    low, high = max(0, first - 1), min(longest, last + 1)
    step = max(1, -(-(high - low) // _STEPS))
    count = max(_STEPS, -(-(high - low) // step))
    return max(0, min(low, longest - step * count)), step, count


def _step(within_s: float | None, bounds: list[float]) -> int:
    return len(bounds) if within_s is None else bounds.index(within_s)


def within(at: int, bounds: list[float]) -> str:
    return (
        f"within {_bound(at, bounds)}"
        if at < len(bounds)
        else f"longer than {_bound(len(bounds) - 1, bounds)}"
    )


def spread_words(spread: dict[str, Any], bounds: list[float]) -> tuple[str, str]:
    """Return median and 95th percentile as words."""
    if not any(spread["counts"]):
        return "–", "–"
    half, most = (_step(spread[name], bounds) for name in ("half_within_s", "most_within_s"))
    return _bound(half, bounds), _bound(most, bounds)


def _bound(at: int, bounds: list[float]) -> str:
    if at >= len(bounds):
        return f"> {_bound(len(bounds) - 1, bounds)}" if at == len(bounds) else ""
    seconds = bounds[at]
    for size, unit in ((86400, "day"), (3600, "h"), (60, "min"), (1, "s")):
        if seconds >= size:
            return f"{seconds / size:g} {unit}"
    return f"{seconds * 1000:g} ms"


# -- periods ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Period:
    """A selectable period; `marks` label its time axis."""

    name: str
    title: str
    intervals: int
    every_ms: int
    each: str
    marks: Sequence[str]

    def around(self, now_ms: int) -> tuple[int, int]:
        """Return begin and end, aligned to intervals, so that a chart shifts once per interval."""
        end = (now_ms // self.every_ms + 1) * self.every_ms
        return end - self.intervals * self.every_ms, end


PERIODS = {
    one.name: one
    for one in (
        Period(
            *("hour", "Hour", 60, 60_000, "each minute"),
            ("60 min", "45", "30", "15", "now"),
        ),
        Period(
            *("day", "Day", 72, 1_200_000, "each 20 minutes"),
            ("24 h", "18", "12", "6", "now"),
        ),
        Period(
            *("week", "Week", 84, 7_200_000, "each 2 hours"),
            ("7 d", "6", "5", "4", "3", "2", "1", "now"),
        ),
    )
}


#: The latest intervals, read each time: more tasks may end in them.
_FRESH = 2
#: Older intervals are cached this long: a task in them may be deleted or retried.
_CACHE_MS = 60_000
_MAX_CACHED = 100


class StatisticsCache:
    """Statistics of a period, with older intervals cached. Blocks."""

    def __init__(self, app: Backburner) -> None:
        self._app = app
        self._cached: dict[tuple[str | None, str, int], tuple[int, dict[str, Any]]] = {}

    def statistics(self, owner: str | None, period: Period, now_ms: int) -> dict[str, Any]:
        since, until = period.around(now_ms)
        edge = until - _FRESH * period.every_ms
        every_s, read = period.every_ms / 1000, self._app.operator.statistics
        key = (owner, period.name, since)
        read_at, before = self._cached.get(key, (0, None))
        if before is None or now_ms - read_at > _CACHE_MS:
            before = read(owner, since=since, until=edge, every_s=every_s)
            self._cache(key, now_ms, before)
        return merge_statistics(before, read(owner, since=edge, until=until, every_s=every_s))

    def _cache(self, key: tuple[str | None, str, int], now_ms: int, before: dict[str, Any]) -> None:
        valid = {known: one for known, one in self._cached.items() if now_ms - one[0] <= _CACHE_MS}
        self._cached = {**(valid if len(valid) < _MAX_CACHED else {}), key: (now_ms, before)}
