"""Ids of tasks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backburner.core.task import first_task_id, is_task_id, new_task_id

TIMES = st.integers(0, 2**48)


@given(TIMES, TIMES)
def test_ids_sort_by_age(one: int, other: int) -> None:
    if one == other:
        return
    assert (new_task_id(one) < new_task_id(other)) == (one < other)


@given(TIMES)
def test_no_id_of_a_time_sorts_before_its_first(moment: int) -> None:
    assert first_task_id(moment) <= new_task_id(moment) < first_task_id(moment + 1)


def test_ids_have_130_random_bits() -> None:
    ids = {new_task_id(1) for _ in range(1000)}
    assert len({task_id[-26:] for task_id in ids}) == 1000
    for position in range(-26, 0):
        assert len({task_id[position] for task_id in ids}) == 32


@pytest.mark.parametrize(
    "text", ["", "tsk_", "tsk_" + "I" * 36, "TSK_" + "0" * 36, "tsk_" + "0" * 35, "tsk_" + "0" * 36 + "\n"]
)
def test_other_text_is_no_id(text: str) -> None:
    assert is_task_id(new_task_id(1))
    assert not is_task_id(text)
