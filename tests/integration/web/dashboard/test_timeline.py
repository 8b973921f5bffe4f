"""The timeline of a task, for any order of events."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backburner.core.times import iso
from backburner.web.dashboard.task import timeline_of

NOW = 1_800_000_000_000
times = st.integers(NOW - 10**9, NOW)
attempts = st.lists(
    st.tuples(times, times | st.none(), times | st.none(), st.sampled_from(["failed", "lost", "timedout"])),
    max_size=60,
)
questions = st.lists(st.tuples(times, times | st.none()), max_size=5)


def task(begin: int, end: int | None, tries: list[Any], asked: list[Any]) -> dict[str, Any]:
    """As `TaskRecords.task` has it. Hosts' clocks differ, so that any time may be before any other."""
    return {
        "submitted_at": iso(begin),
        "completed_at": iso(end),
        "attempts": [
            {
                "attempt": number,
                "claimed_at": iso(claimed),
                "started_at": iso(started),
                "ended_at": iso(ended),
                "outcome": None if ended is None else outcome,
            }
            for number, (claimed, started, ended, outcome) in enumerate(tries, 1)
        ],
        "all_questions": [
            {"asked_at": iso(since), "answered_at": iso(until), "action": None} for since, until in asked
        ],
    }


@given(times, times | st.none(), attempts, questions)
def test_a_strip_has_no_gap_and_ends_where_it_should(
    begin: int, end: int | None, tries: list[Any], asked: list[Any]
) -> None:
    strip = timeline_of(task(begin, end, tries, asked), NOW)
    at = 0.0
    for stretch in strip.segments:
        assert stretch.begin == pytest.approx(at)
        assert stretch.width > 0.5
        assert stretch.seconds > 0
        at += stretch.width
    assert at == pytest.approx(100)
    for question in strip.questions:
        assert question.begin >= 0
        assert question.begin + question.width <= 101
    assert strip.left_out == max(0, len(tries) - 24)
