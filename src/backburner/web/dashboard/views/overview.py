"""The first page: how much there is to do, how it goes, who works on it, and what needs somebody."""

from __future__ import annotations

from typing import Any

from ....lifecycle import LEASED
from .. import charts
from ..pages import Asked, Desk, Page
from ..past import Past
from ..slots import by_queue

#: So many of each are shown of what needs somebody, and of the tasks of one queue on one host.
_MOST_ASKING, _MOST_FAILURES, _MOST_SLOTS = 5, 5, 8
#: And so many tasks are looked at: the latest to have failed are among those that were submitted last.
_LOOKED_AT = 20
#: What a page can know of what is under way.
MOST_UNDER_WAY = 500
#: States that a person tells apart, and what they are together.
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


class Overview:
    def __init__(self, desk: Desk) -> None:
        self._desk, self._past = desk, Past(desk.reading)

    @property
    def pages(self) -> list[Page]:
        return [Page("/", "overview.html", "overview", self.overview)]

    def overview(self, asked: Asked) -> dict[str, Any]:
        reading, access = self._desk.reading, asked.access
        period = charts.PERIODS.get(asked.query.get("last", ""), charts.PERIODS["hour"])
        ended = self._past.statistics(access, period, self._desk.app.store.now_ms())
        states = reading.states(access)["states"]
        under_way = reading.tasks(access, states=[*LEASED], limit=MOST_UNDER_WAY)["tasks"]
        queues = by_queue(reading.queues()["queues"], reading.workers(access)["workers"], under_way)
        return {
            "figures": [(title, names, sum(states[name] for name in names)) for title, names in _FIGURES],
            "any_tasks": any(states.values()),
            "period": period,
            "periods": charts.PERIODS.values(),
            "queues": queues,
            "deepest": max((one.queue["queued"] for one in queues), default=0),
            "most_slots": _MOST_SLOTS,
            **_charts(ended),
            **self._needed(asked, states, ended),
            "troubled": [one for one in queues if one.trouble],
        }

    def _needed(self, asked: Asked, states: dict[str, int], ended: dict[str, Any]) -> dict[str, Any]:
        """What waits for an answer, the longest first, and what has failed in the time that is shown."""
        reading, access = self._desk.reading, asked.access
        asking: list[dict[str, Any]] = []
        if states["input_required"]:
            asking = reading.tasks(access, states=["input_required"], oldest_first=True, limit=_MOST_ASKING)[
                "tasks"
            ]
        failures: list[dict[str, Any]] = []
        count = charts.counts(ended["total"]["ended"])["failed"]
        if count:
            latest = reading.tasks(access, states=["failed", "timed_out"], limit=_LOOKED_AT)["tasks"]
            failures = [one for one in latest if one["completed_at"] >= ended["since"]]
            failures.sort(key=lambda one: str(one["completed_at"]), reverse=True)
            if len(latest) < _LOOKED_AT:  # these are all that there are, and what was counted may be older
                count = len(failures)
        return {
            "asking": asking,
            "asking_count": states["input_required"],
            "failures": failures[:_MOST_FAILURES],
            "failures_count": count,
        }


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
