"""JSON that every store can keep."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backburner.core.json_text import canonical, decode, encode
from backburner.errors import InvalidJson

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda values: st.lists(values, max_size=4) | st.dictionaries(TEXT, values, max_size=4),
)


@given(VALUES)
def test_what_is_encoded_comes_back(value: Any) -> None:
    assert decode(encode(value)) == value
    assert json.loads(encode(value)) == value


@given(st.dictionaries(TEXT, st.integers()))
def test_the_same_value_is_the_same_canonical_text(value: dict[str, int]) -> None:
    assert canonical(value) == canonical(dict(reversed(value.items())))


@given(st.dictionaries(TEXT, st.integers()))
def test_what_is_kept_comes_back_in_its_order(value: dict[str, int]) -> None:
    assert list(decode(encode(value)).items()) == list(value.items())


@pytest.mark.parametrize(
    "value",
    [
        "a\0",
        {"\0": 1},
        ["\\\0"],
        "\ud800",
        {"\udfff": 1},
        float("nan"),
        [float("inf")],
        len,
        {1, 2},
        b"x",
    ],
    ids=repr,
)
def test_what_cannot_be_kept_is_refused(value: Any) -> None:
    with pytest.raises(InvalidJson):
        encode(value)


def test_the_letters_of_an_escape_are_just_letters() -> None:
    assert decode(encode("\\u0000 and \\ud800")) == "\\u0000 and \\ud800"
