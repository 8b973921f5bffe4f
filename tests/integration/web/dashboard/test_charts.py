"""Charts of what ended: whatever the figures are, all of it is within the chart, and the labels are true."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backburner.core.monitoring import LATENCY_BOUNDS_MS
from backburner.service.monitoring import merge_statistics, statistics
from backburner.store import open_store
from backburner.web.dashboard.overview import HEIGHT, PERIODS, Chart, latency, throughput
from tests.integration.web.conftest import Api, Served

BOUNDS = [bound / 1000 for bound in LATENCY_BOUNDS_MS]
ENDED = st.dictionaries(
    st.sampled_from(["succeeded", "failed", "timed_out", "cancelled", "expired"]), st.integers(1, 10**8)
)
WITHIN = st.sampled_from([*BOUNDS, None])


def stretch(ended: dict[str, int], half: float | None = None, most: float | None = None) -> dict[str, Any]:
    """`half` is no longer than `most`."""
    low, high = sorted([half, most], key=lambda one: float("inf") if one is None else one)
    spread = {"counts": [1] if ended else [0], "half_within_s": low, "most_within_s": high}
    return {"since": "2026-11-18T12:00:00.000Z", "ended": ended, "wait": spread, "run": spread}


def of(*stretches: dict[str, Any]) -> dict[str, Any]:
    return {"bounds_s": BOUNDS, "stretches": [*stretches]}


def is_within(chart: Chart) -> bool:
    bars = [bar for column in chart.columns for bar in column.bars]
    inside = all(bar.y >= 0 and bar.y + bar.height <= HEIGHT + 0.1 and bar.height > 0 for bar in bars)
    return inside and all(0 <= column.x <= chart.width - chart.column for column in chart.columns)


@given(st.lists(st.builds(stretch, ENDED, WITHIN, WITHIN), max_size=12))
def test_everything_is_within_the_chart(stretches: list[dict[str, Any]]) -> None:
    for chart in (throughput(of(*stretches)), latency(of(*stretches), "run")):
        assert is_within(chart)
        assert len(chart.columns) == sum(1 for one in stretches if one["ended"])
        if chart.columns:
            assert len(chart.labels) == len(chart.lines)
            assert [*chart.lines] == sorted(chart.lines)


@pytest.mark.parametrize(
    ("most", "labels"),
    [
        (1, ["2", "1", "0"]),
        (11, ["12", "6", "0"]),
        (1273, ["1.6k", "800", "0"]),
        (2_000_001, ["3M", "1.5M", "0"]),
    ],
)
def test_the_scale_of_a_count_ends_with_a_round_number(most: int, labels: list[str]) -> None:
    assert [*throughput(of(stretch({"succeeded": most}))).labels] == labels


def test_a_column_says_what_it_shows() -> None:
    ended = {"succeeded": 1200, "timed_out": 1, "failed": 2, "cancelled": 4}
    (column,) = throughput(of(stretch(ended))).columns
    assert column.title == "Wed 12:00 UTC: 1,200 succeeded, 3 failed, 4 cancelled or expired"
    (column,) = latency(of(stretch(ended, 2.5, None)), "wait").columns
    assert column.title == "Wed 12:00 UTC: median within 2.5 s, 95 % longer than 1 day"


def test_a_period_begins_at_an_even_time_and_has_this_moment_in_it() -> None:
    now_ms = 1_794_000_123_456
    for period in PERIODS.values():
        since, until = period.around(now_ms)
        assert since % period.every_ms == 0
        assert until - since == period.intervals * period.every_ms
        assert until - period.every_ms <= now_ms < until


def test_two_times_that_are_joined_are_as_one(open_server: Served) -> None:
    with contextlib.closing(Api(open_server.address)) as api:
        api.finished("count")
        api.finished("fail")
    url = open_server.deployment.environment["BACKBURNER_STORE"]
    with contextlib.closing(open_store(url)) as store:
        end = store.now_ms() // 1000 * 1000 + 1000
        begin, middle = end - 600_000, end - 2000
        parts = [statistics(store, *times, 1000) for times in ((begin, middle), (middle, end))]
        whole = statistics(store, begin, end, 1000)
    assert sum(whole["total"]["ended"].values()) >= 2
    assert merge_statistics(*parts) == whole
