"""Every example of a pattern matches it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backburner.mcp.completion.values import continued, matches, pattern_examples

_atoms = st.one_of(
    st.sampled_from(["a", "b", "Z", "7", "_", r"\.", r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", ".", "é"]),
    st.sampled_from(["[a-z]", "[^a-z]", "[A-F0-9]", r"[\w.-]", "[^\\s@]", "[_]", "[à-ü]"]),
)
_patterns = st.recursive(
    _atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["?", "*", "+", "{2}", "{1,3}", "{3,}", "*?", "+?"])).map(
            lambda two: f"(?:{two[0]}){two[1]}"
        ),
        inner.map(lambda one: f"({one})"),
    ),
    max_leaves=6,
)


@given(_patterns, st.booleans(), st.integers(0, 5), st.one_of(st.none(), st.integers(3, 30)))
def test_every_example_matches_its_pattern_and_fits_its_length(
    pattern: str, anchored: bool, shortest: int, longest: int | None
) -> None:
    pattern = f"^{pattern}$" if anchored else pattern
    for example in pattern_examples(pattern, min_length=shortest, max_length=longest):
        assert re.search(pattern, example)
        assert shortest <= len(example) <= (longest or 200)


@given(_patterns, st.text("ab7_ ", min_size=1, max_size=4))
def test_every_continuation_begins_with_what_was_typed_and_matches(pattern: str, typed: str) -> None:
    for text in continued(pattern, typed, pattern_examples(pattern)):
        assert text.startswith(typed)
        assert re.search(pattern, text)


@pytest.mark.parametrize(
    "pattern",
    [
        r"^[a-z_]+$",
        r"^[A-Z]{3}-\d{3,5}$",
        r"^(?:\d{1,3}\.){3}\d{1,3}$",
        r"^[^@\s]+@[^@\s]+\.[a-z]{2,}$",
        r"^(?=.*\d)[a-z\d]{4,}$",
        r"^(?!x)\w$",
        r"^(a|b)\1$",
        r"(?i)^abc$",
        r"^[\u4e00-\u9fff]{2}$",
        r"^tsk_[0-9A-Z]{36}$",
        r"^(?>a+)b$",
        r"",
    ],
)
def test_patterns_that_people_write_have_examples(pattern: str) -> None:
    examples = pattern_examples(pattern)
    assert examples
    assert all(re.search(pattern, example) for example in examples)


@pytest.mark.parametrize("pattern", ["(", r"\p{L}", "[z-a]", "a{99999999999}", "(" * 3000 + ")" * 3000])
def test_what_is_no_pattern_has_no_examples_and_matches_nothing(pattern: str) -> None:
    assert pattern_examples(pattern) == ()
    assert not matches(pattern, "a")
