"""How long will it take: before a task starts, and while it runs."""

import pytest

from backburner.core.task import Progress
from backburner.core.times import LONGEST_S
from backburner.errors import ToolDefinitionError
from backburner.store.protocol import Runtime
from backburner.tools.estimates import Experience, eta_s, hint, poll_after_ms
from backburner.tools.spec import ToolSpec


def runs(*seconds: float, size: int = 100, hint_s: float | None = None) -> list[Runtime]:
    return [Runtime(size, one, hint_s) for one in seconds]


def test_a_hint_is_a_number_or_made_of_the_inputs() -> None:
    assert hint(3, {}) == 3.0
    assert hint(lambda inputs: inputs["steps"] * 0.5, {"steps": 4}) == 2.0
    assert hint(None, {}) is None


@pytest.mark.parametrize("broken", [lambda inputs: inputs["no"], lambda inputs: "soon", lambda inputs: -1,
                                    lambda inputs: float("nan"), lambda inputs: float("inf")])  # fmt: skip
def test_a_hint_that_makes_no_sense_says_nothing(broken: object) -> None:
    assert hint(broken, {}) is None  # type: ignore[arg-type]


def test_without_experience_the_hint_stands_and_without_a_hint_nothing_is_known() -> None:
    assert Experience([]).estimate(100, 7.0) == 7.0
    assert Experience([]).estimate(100, None) is None


def test_a_fixed_estimate_that_makes_no_sense_is_refused_when_the_tool_is_made() -> None:
    for estimate in (-1, float("nan"), "soon"):
        with pytest.raises(ToolDefinitionError, match="neither seconds"):
            ToolSpec("any", lambda inputs, context: None, estimate=estimate)  # type: ignore[arg-type]


def test_a_hint_of_next_to_nothing_makes_no_estimate_of_more_than_any() -> None:
    taught = Experience(runs(1000, hint_s=5e-324))
    assert taught.estimate(100, 1e9) == LONGEST_S
    assert taught.estimate(100, 0.0) == 0


def test_one_run_is_better_than_nothing() -> None:
    assert Experience(runs(4)).estimate(100, None) == 4


def test_a_learned_estimate_is_high_but_not_spoilt_by_one_slow_run() -> None:
    assert Experience(runs(*range(1, 101))).estimate(100, None) == pytest.approx(75, abs=1)
    assert Experience(runs(*[10] * 50, 10_000)).estimate(100, None) == 10


def test_runs_with_inputs_of_like_size_count_where_there_are_enough() -> None:
    history = runs(*[1] * 50, size=100) + runs(*[60] * 5, size=5000)
    assert Experience(history).estimate(5100, None) == 60
    assert Experience(history).estimate(110, None) == 1
    few = runs(*[1] * 50, size=100) + runs(*[60] * 4, size=5000)
    assert Experience(few).estimate(5100, None) == 1


def test_runs_with_the_same_inputs_count_before_all_others() -> None:
    experience = Experience([*runs(5, 5, 5, 5, 5, 5), Runtime(100, 0.1, None, "same")])
    assert experience.estimate(100, None, "same") == 0.1
    assert experience.estimate(100, None, "others") == 5
    assert (experience.has_run("same"), experience.has_run("others")) == (True, False)


def test_experience_corrects_a_hint_that_is_off() -> None:
    assert Experience(runs(20, 20, 22, hint_s=10)).estimate(100, 30.0) == 60
    assert Experience(runs(20)).estimate(100, 30.0) == 30


def test_the_time_left_comes_from_the_estimate_at_first_and_from_progress_later() -> None:
    assert eta_s(None, 10, None) is None
    assert eta_s(None, 10, 30) == 20
    assert eta_s(None, 40, 30) == 0
    assert eta_s(Progress(percent=50), 10, None) == 10
    assert eta_s(Progress(percent=50), 10, 1000) == 10
    assert eta_s(Progress(percent=10), 10, 50) == pytest.approx(0.5 * 90 + 0.5 * 40)
    assert eta_s(Progress(percent=100), 10, 50) == 0


@pytest.mark.parametrize(
    ("left_s", "elapsed_s", "expected"),
    [(0, 5, 50), (8, 0, 1000), (10**6, 0, 10_000), (None, 0, 50), (None, 16, 2000)],
)
def test_the_next_look_is_sooner_when_the_end_is_near(
    left_s: float | None, elapsed_s: float, expected: int
) -> None:
    assert poll_after_ms(left_s, elapsed_s) == expected
