"""The SQL statements, held to what they are made from."""

import re
from importlib.resources import files

import pytest

from backburner.core.lifecycle import LEASED, TERMINAL, State
from backburner.store.sql.statements import statements

_LIST_OF_STATES = re.compile(r"state IN \(([^)]*)\)")


def test_no_statement_spells_a_set_of_states_itself() -> None:
    for file in (files("backburner.store.sql") / "queries").iterdir():
        assert [found for found in _LIST_OF_STATES.findall(file.read_text("utf-8")) if "'" in found] == []


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_the_sets_of_states_in_statements_are_those_of_the_lifecycle(dialect: str) -> None:
    listed = [
        frozenset(State(name.strip("' ")) for name in found.split(","))
        for statement in statements(dialect).values()
        for found in _LIST_OF_STATES.findall(statement)
    ]
    assert set(listed) == {LEASED, frozenset(State) - LEASED, frozenset(State) - TERMINAL}
