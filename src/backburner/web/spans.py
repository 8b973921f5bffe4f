"""Statistics over time: how many tasks ended in each stretch, and how long they had waited and run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import InvalidRequest
from ..looking import LATENCY_BOUNDS_MS, Ended
from ..store import Store
from ..times import iso

_MOST_STRETCHES = 1500
_BOUNDS_S = [bound / 1000 for bound in LATENCY_BOUNDS_MS]


def statistics(store: Store, since: int, until: int, every_ms: int, **filters: Any) -> dict[str, Any]:
    """Stretches of `every_ms` from `since` to `until`; those in which nothing ended are there, too."""
    count = -(-(until - since) // every_ms) if every_ms > 0 else 0
    if not 1 <= count <= _MOST_STRETCHES:
        reason = f"from since to until there must be 1 to {_MOST_STRETCHES} stretches of every_s, not {count}"
        raise InvalidRequest(reason=reason)
    found: dict[int, list[Ended]] = {}
    for one in store.ended(since, until, every_ms, **filters):
        found.setdefault(one.stretch, []).append(one)
    return {
        "since": iso(since),
        "until": iso(until),
        "every_s": every_ms / 1000,
        "bounds_s": _BOUNDS_S,
        "total": _counted(one for some in found.values() for one in some),
        "stretches": [
            {"since": iso(since + n * every_ms), **_counted(found.get(n, ()))} for n in range(count)
        ],
    }


def joined(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """The statistics of two times as those of one; `after` begins where `before` ends."""
    totals = (before["total"], after["total"])
    return {
        **after,
        "since": before["since"],
        "stretches": [*before["stretches"], *after["stretches"]],
        "total": {
            "ended": dict(sum((Counter(one["ended"]) for one in totals), Counter[str]())),
            **{name: _of_counts(_added(name, *totals)) for name in ("wait", "run")},
        },
    }


def _added(name: str, *totals: dict[str, Any]) -> list[int]:
    return [sum(counts) for counts in zip(*(one[name]["counts"] for one in totals), strict=True)]


def _counted(ended: Iterable[Ended]) -> dict[str, Any]:
    states, waits, runs = Counter[str](), Counter[int](), Counter[int]()
    for one in ended:
        states[str(one.state)] += one.tasks
        if one.wait is not None:
            waits[one.wait] += one.tasks
        if one.run is not None:
            runs[one.run] += one.tasks
    return {"ended": dict(states), "wait": _spread(waits), "run": _spread(runs)}


def _spread(classes: Mapping[int, int]) -> dict[str, Any]:
    """How many spans are below each bound and not below the one before; and within what the most are."""
    return _of_counts([classes.get(n, 0) for n in range(len(_BOUNDS_S) + 1)])


def _of_counts(counts: list[int]) -> dict[str, Any]:
    return {"counts": counts, "half_within_s": _within(counts, 0.5), "most_within_s": _within(counts, 0.95)}


def _within(counts: list[int], part: float) -> float | None:
    """The first bound below which so large a part is; None if that is none, or there is nothing."""
    wanted, seen = part * sum(counts), 0
    for bound_s, count in zip(_BOUNDS_S, counts, strict=False):
        seen += count
        if seen and seen >= wanted:
            return bound_s
    return None
