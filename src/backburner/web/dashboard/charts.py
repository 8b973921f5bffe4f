"""Charts of completions and latencies, computed as shapes for templates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ...app import Backburner
from ...service.monitoring import merge_statistics

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
