"""Reading inputs from words, and making hostile text harmless."""

from __future__ import annotations

import json
import sys
import unicodedata

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from backburner.cli.calls import read_inputs
from backburner.cli.output import print_json
from backburner.core.text import printable

SCHEMA = {
    "properties": {
        "name": {"type": "string"},
        "kind": {"enum": ["a", "b"]},
        "count": {"type": "integer"},
        "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    }
}


@pytest.mark.parametrize(
    ("word", "key", "value"),
    [
        ("name=42", "name", "42"),
        ("name=", "name", ""),
        ("name=a=b", "name", "a=b"),
        ("kind=a", "kind", "a"),
        ("count=42", "count", 42),
        ("count=many", "count", "many"),
        ("either=null", "either", None),
        ("other=[1, 2]", "other", [1, 2]),
        ("other=text", "other", "text"),
        ('name:={"a": 1}', "name", {"a": 1}),
    ],
)
def test_a_word_is_text_where_the_schema_says_so_and_else_json_if_it_can_be(
    word: str, key: str, value: object
) -> None:
    assert read_inputs([word], None, SCHEMA) == {key: value}


def test_words_are_put_over_the_whole() -> None:
    assert read_inputs(["count=2"], '{"count": 1, "name": "x"}', SCHEMA) == {"count": 2, "name": "x"}


@pytest.mark.parametrize("word", ["name", "=x", ":=1", "name:=nope"])
def test_a_word_that_says_nothing_is_refused(word: str) -> None:
    with pytest.raises(typer.BadParameter):
        read_inputs([word], None, SCHEMA)


@pytest.mark.parametrize("whole", ["[1]", "{", "@nowhere.json"])
def test_a_whole_that_is_no_object_is_refused(whole: str) -> None:
    with pytest.raises(typer.BadParameter):
        read_inputs([], whole, SCHEMA)


def unsafe(text: str) -> list[str]:
    """The characters that a terminal could act on, or that a person could not see."""
    return [char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")]


def test_no_invisible_character_reaches_a_terminal() -> None:
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    assert unsafe(printable(everything)) == []
    blanks = "\u034f\u115f\u1160\u17b4\u180b\u2800\u3164\uffa0"
    assert not set(blanks) & set(printable(everything))
    assert printable("a\u200bb\U000e0041") == r"a\u200bb\U000e0041"
    assert (
        printable("e\u0301 \u00e9 \U0001f600 \u2764\ufe0f \u05e9 \u0645")
        == "e\u0301 \u00e9 \U0001f600 \u2764\ufe0f \u05e9 \u0645"
    )


@given(st.text(st.characters()))
def test_nothing_that_is_printed_can_steer_a_terminal(text: str) -> None:
    assert unsafe(printable(text)) == []
    assert set(unsafe(printable(text, lines=True))) <= {"\n", "\t"}


@given(value=st.dictionaries(st.text(), st.text()))
def test_json_means_the_same_and_cannot_steer_a_terminal_either(value: dict[str, str]) -> None:
    import contextlib
    import io

    with contextlib.redirect_stdout(io.StringIO()) as out:
        print_json(value)
    assert set(unsafe(out.getvalue())) <= {"\n"}
    assert json.loads(out.getvalue()) == value
