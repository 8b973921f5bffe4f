"""Charts of what ended over time, as shapes for a template to draw: columns of bars, and their labels.

A chart is as wide as its page allows, so it is stretched sideways and has no text in it: the labels stand
around it, at even distances.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

HEIGHT = 120.0
#: How wide a column is, and how much of that is left free.
_COLUMN, _GAP = 10.0, 2.0
#: Whatever is there can be seen.
_LEAST, _MARK = 2.0, 3.0
#: So many steps has a scale of spans of time.
_STEPS = 4
#: Tops of scales, and ten times as much, and so on.
_TOPS = (2, 4, 6, 8, 10, 12, 16, 20, 30, 40, 50, 60, 80, 100)
#: What ended, in three kinds, from below.
KINDS = {
    "succeeded": ("succeeded",),
    "failed": ("failed", "timed_out"),
    "other": ("cancelled", "expired"),
}
_WORDS = {"succeeded": "succeeded", "failed": "failed", "other": "cancelled or expired"}


@dataclass(frozen=True, slots=True)
class Bar:
    """`kind` is the class by which it is coloured."""

    kind: str
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Column:
    """A stretch of time: what is drawn, and the same in words."""

    x: float
    since: str
    said: str
    bars: Sequence[Bar]

    @property
    def title(self) -> str:
        return f"{clock(self.since)} UTC: {self.said}"


@dataclass(frozen=True, slots=True)
class Chart:
    """`labels` are from above to below, one for each of `lines`. Without columns there is nothing to draw."""

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
    """How many ended in each of our kinds."""
    return {kind: sum(ended.get(state, 0) for state in states) for kind, states in KINDS.items()}


# -- how many ended --------------------------------------------------------------------------------


def throughput(statistics: dict[str, Any]) -> Chart:
    stretches = statistics["stretches"]
    most = max((sum(one["ended"].values()) for one in stretches), default=0)
    top = _even(most)
    columns = [
        Column(
            n * _COLUMN, one["since"], _counted(counts(one["ended"])), [*_stack(counts(one["ended"]), top)]
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
            height = max(_LEAST, HEIGHT * count / top)
            y = max(0.0, y - height)
            yield Bar(kind, round(y, 2), round(height, 2))


def _counted(counted: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {_WORDS[kind]}" for kind, count in counted.items() if count)


def _even(most: int) -> int:
    """The first number for the top of a scale that is no less, and can be halved."""
    size = 1
    while most > _TOPS[-1] * size:
        size *= 10
    return next(figure * size for figure in _TOPS if figure * size >= most)


def _brief(value: int) -> str:
    for size, unit in ((1_000_000, "M"), (1000, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return str(value)


# -- how long it took ------------------------------------------------------------------------------


def latency(statistics: dict[str, Any], of: str) -> Chart:
    """Of `wait` or `run`: bars from what half are within to what 95 of 100 are. Each bound is a step."""
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
        said = f"half {within(half, bounds)}, 95 % {within(most, bounds)}"
        mark = Bar("half", min(y(half), HEIGHT - _MARK), _MARK)
        columns.append(Column(n * _COLUMN, since, said, [*reach, mark]))
    steps = [low + step * n for n in range(count, -1, -1)]
    return Chart(width, columns, [_bound(at, bounds) for at in steps], [y(at) for at in steps])


def _scale(first: int, last: int, longest: int) -> tuple[int, int, int]:
    """Where the scale begins, how many bounds there are from one label to the next, and how many such steps.

    There is room above and below what is drawn, where there are bounds.
    """
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
    """Within what half is, and 95 of 100."""
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


# -- which time ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Period:
    """A time that can be chosen, in stretches; `marks` stand below it at even distances."""

    name: str
    title: str
    stretches: int
    every_ms: int
    each: str
    marks: Sequence[str]

    def around(self, now_ms: int) -> tuple[int, int]:
        """From when to when. Stretches begin at even times, so that a chart moves on only with these."""
        end = (now_ms // self.every_ms + 1) * self.every_ms
        return end - self.stretches * self.every_ms, end


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
