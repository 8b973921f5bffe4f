"""The table of states and signals."""

from backburner.core.lifecycle import (
    LEASED,
    TERMINAL,
    TRANSITIONS,
    Signal,
    State,
    next_state,
)


def test_every_state_has_its_row_and_leads_only_to_states() -> None:
    assert set(TRANSITIONS) == set(State)
    for moves in TRANSITIONS.values():
        assert set(moves) <= set(Signal)
        assert set(moves.values()) <= set(State)


def test_every_state_is_queued_or_leased_or_terminal() -> None:
    assert {State.QUEUED} | LEASED | TERMINAL == set(State)
    assert not LEASED & TERMINAL


def test_every_state_but_the_first_can_be_reached_and_every_unfinished_one_can_end() -> None:
    def reached_from(state: State) -> set[State]:
        found = {state}
        while more := {after for one in found for after in TRANSITIONS[one].values()} - found:
            found |= more
        return found

    assert reached_from(State.QUEUED) == set(State)
    for state in State:
        assert reached_from(state) & TERMINAL


def test_nothing_but_expiry_and_a_callers_retry_leaves_a_final_state() -> None:
    for state in TERMINAL:
        assert set(TRANSITIONS[state]) <= {Signal.EXPIRE, Signal.RETRY}
    assert TRANSITIONS[State.EXPIRED] == {}
    assert Signal.RETRY not in TRANSITIONS[State.SUCCEEDED]


def test_every_signal_is_of_use() -> None:
    for signal in Signal:
        assert any(signal in moves for moves in TRANSITIONS.values())


def test_a_task_that_is_being_cancelled_succeeds_or_is_cancelled() -> None:
    for state in (State.CANCEL_REQUESTED, State.CANCELLING):
        ends = set(TRANSITIONS[state].values()) & TERMINAL
        assert ends == {State.SUCCEEDED, State.CANCELLED}


def test_what_the_table_does_not_name_is_forbidden() -> None:
    assert next_state(State.QUEUED, Signal.CLAIM) is State.SCHEDULED
    assert next_state(State.QUEUED, Signal.SUCCEED) is None
    assert next_state(State.SUCCEEDED, Signal.CANCEL) is None
