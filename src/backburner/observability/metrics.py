"""Prometheus metrics of a store and of this server. All metric names are defined here.

Completions are counted from the audit trails on each scrape, so all servers of a store report the same
counts, each from its first scrape on.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from threading import Lock
from typing import TYPE_CHECKING, Any

from ..core.lifecycle import TERMINAL
from ..core.monitoring import Completion, FeedCursor
from .counters import COUNTERS

if TYPE_CHECKING:
    from ..app import Backburner
    from ..store.protocol import Store


#: In the place of names that are not the app's: anybody can make up a name, and each is kept for ever.
OTHER = "other"

_OUTCOMES = ("succeeded", "failed", "cancelled", "timed_out", "handed_back", "lost")
_TASK_S = (0.01, 0.05, 0.25, 1, 5, 15, 60, 300, 900, 3600, 14400, 86400)
_STORE_S = (0.0001, 0.00025, 0.001, 0.0025, 0.01, 0.025, 0.1, 0.25, 1, 2.5, 10)

#: What other processes may still be about to commit is left for the next look.
SETTLED_MS = 2_000
#: So much is read at a time, and so often at most in one look: the rest is for the next.
_PAGE, _MOST_PAGES = 5_000, 20

Labels = tuple[str, ...]


class Histogram:
    """Cumulative counts per bound, and the sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        self._lock = Lock()

    def add(self, value: float) -> None:
        with self._lock:
            self._counts[bisect_left(self._bounds, value)] += 1
            self._sum += value

    def add_to(self, family: Any, labels: Labels) -> None:
        with self._lock:
            counts, total = list(accumulate(self._counts)), self._sum
        bounds = [*map(str, map(float, self._bounds)), "+Inf"]
        family.add_metric(labels, buckets=list(zip(bounds, counts, strict=True)), sum_value=total)


class EndingCounts:
    """Completions in a store since the first look at it, by tool and queue."""

    def __init__(self, app: Backburner) -> None:
        self._app = app
        self._mark: FeedCursor | None = None
        self.finished: Counter[Labels] = Counter()
        self.attempts: Counter[Labels] = Counter()
        self.retries: Counter[Labels] = Counter()
        self.waits: dict[Labels, Histogram] = {}
        self.runs: dict[Labels, Histogram] = {}

    def catch_up(self, store: Store) -> None:
        """Count what has ended since the last look. Raises StoreError."""
        until = store.now_ms() - SETTLED_MS
        if self._mark is None:
            self._mark = FeedCursor(until)
            self._begin()
        for _ in range(_MOST_PAGES):
            page = store.endings(self._mark, until, _PAGE)
            for ending in page:
                self._count(ending)
            if page:
                self._mark = page[-1].mark
            if len(page) < _PAGE:
                break

    def _begin(self) -> None:
        """With zeros: a series that begins with its first event hides that from who asks for a rate."""
        for tool in self._app.tools:
            of = tool.name, tool.queue_in(self._app.settings)
            self.retries[of] = 0
            self.finished.update({(*of, state): 0 for state in TERMINAL})
            self.attempts.update({(*of, outcome): 0 for outcome in _OUTCOMES})

    def _count(self, ending: Completion) -> None:
        of = self._known(ending)
        if ending.outcome is not None:
            self.attempts[(*of, ending.outcome)] += 1
        if ending.state in TERMINAL:
            self.finished[(*of, ending.state)] += 1
        elif ending.outcome != "handed_back":
            self.retries[of] += 1
        if ending.waited_s is not None:
            self.waits.setdefault(of, Histogram(_TASK_S)).add(ending.waited_s)
        if ending.ran_s is not None:
            self.runs.setdefault(of, Histogram(_TASK_S)).add(ending.ran_s)

    def _known(self, ending: Completion) -> Labels:
        return (
            ending.tool_name if ending.tool_name in self._app.tools else OTHER,
            queue_label(self._app, ending.queue),
        )


def queue_label(app: Backburner, queue: str) -> str:
    return queue if queue in app.settings.queues else OTHER


class Metrics:
    """All metrics of one app, as families that `prometheus_client` can write."""

    def __init__(self, app: Backburner) -> None:
        self._app = app
        self._endings = EndingCounts(app)
        self._latency = {kind: Histogram(_STORE_S) for kind in ("read", "write")}
        self._observed: Store | None = None

    def of_server(self, *, store_up: bool) -> Iterator[Any]:
        """Metrics of this process alone."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        up = "1 if the store answered this scrape, else 0: then there is nothing of the store in it"
        yield GaugeMetricFamily("backburner_store_up", up, float(store_up))
        latency = HistogramMetricFamily(
            "backburner_store_seconds",
            "How long this server's reads and writes of the store take",
            labels=["kind"],
        )
        for kind, histogram in self._latency.items():
            histogram.add_to(latency, (kind,))
        yield latency
        held = "Calls that this server holds open until their task is over"
        yield GaugeMetricFamily("backburner_held_calls", held, COUNTERS.held_calls)
        joined = "Calls to this server that joined the task of the same call made before"
        yield CounterMetricFamily("backburner_joined_calls", joined, COUNTERS.joined_calls)
        dropped = "Notifications of this server that clients did not take in time"
        yield CounterMetricFamily("backburner_notifications_dropped", dropped, COUNTERS.notifications_dropped)

    def of_store(self) -> list[Any]:
        """Metrics of the store, the same on every server. Single-flight. Raises StoreError."""
        store = self._app.store
        if self._observed is not store:
            self._observed = store
            store.observe(lambda kind, seconds: self._latency[kind].add(seconds))
        self._endings.catch_up(store)
        return [*self._of_queues(store), *self._of_endings()]

    def _of_queues(self, store: Store) -> Iterator[Any]:
        from prometheus_client.core import GaugeMetricFamily

        queued, running, workers = (Counter(dict.fromkeys(self._app.settings.queues, 0)) for _ in range(3))
        for depth in store.queue_depths():
            queued[queue_label(self._app, depth.queue)] += depth.queued
            running[queue_label(self._app, depth.queue)] += depth.leased
        heard_since = store.now_ms() - self._app.settings.supervisor.lease_grace_s * 1000
        for worker in store.workers():
            workers[queue_label(self._app, worker.queue)] += worker.last_heartbeat >= heard_since
        for name, help, counts in (
            ("backburner_queue_depth", "Tasks that wait in a queue", queued),
            ("backburner_queue_running", "Tasks of a queue that workers have", running),
            ("backburner_workers", "Workers of a queue that were heard within the grace time", workers),
        ):
            yield _family(GaugeMetricFamily(name, help, labels=["queue"]), counts)

    def _of_endings(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

        of = ["tool", "queue"]
        counted, found = CounterMetricFamily, self._endings
        finished = counted("backburner_tasks_finished", "Tasks that are over", labels=[*of, "state"])
        yield _family(finished, found.finished)
        attempts = counted("backburner_attempts_ended", "Attempts that are over", labels=[*of, "outcome"])
        yield _family(attempts, found.attempts)
        retries = counted("backburner_retries", "Attempts after which the task is tried again", labels=of)
        yield _family(retries, found.retries)
        for name, help, histograms in (
            ("backburner_task_wait_seconds", "From when a task was queued to its start", found.waits),
            ("backburner_task_run_seconds", "From the start of an attempt to its end", found.runs),
        ):
            family = HistogramMetricFamily(name, help, labels=of)
            for labels, histogram in sorted(histograms.items()):
                histogram.add_to(family, labels)
            yield family


def _family(family: Any, counts: Counter[Any]) -> Any:
    for labels, count in sorted(counts.items()):
        family.add_metric([labels] if isinstance(labels, str) else [str(label) for label in labels], count)
    return family
