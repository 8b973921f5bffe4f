"""The task lifecycle: states, signals and the only table of transitions. It imports no other module."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class State(StrEnum):
    """State of a task."""

    QUEUED = "queued"
    SCHEDULED = "scheduled"
    RUNNING = "running"
    INPUT_REQUIRED = "input_required"
    CANCEL_REQUESTED = "cancel_requested"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    EXPIRED = "expired"


class Signal(StrEnum):
    """Signal that moves a task from one state to another."""

    CLAIM = "claim"  # a worker leases the task
    START = "start"  # its runner begins the tool
    ASK = "ask"  # the tool asks the client something
    ANSWER = "answer"  # every open question has its answer
    CANCEL = "cancel"  # somebody wants it stopped
    STOP = "stop"  # the supervisor has told the runner to stop
    CONFIRM = "confirm"  # the runner has stopped because of a cancel
    SUCCEED = "succeed"  # the tool returned
    FAIL = "fail"  # the attempt failed and there is no further one
    RETRY = "retry"  # the attempt failed, or the caller wants another one
    HAND_BACK = "hand_back"  # the worker gives the task back undone
    TIME_OUT = "time_out"  # the time limit is over
    EXPIRE = "expire"  # the time to live is over


#: Nothing but `expire` and a caller's `retry` leaves these.
TERMINAL = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED, State.TIMED_OUT, State.EXPIRED})

#: A worker holds the task.
LEASED = frozenset(
    {State.SCHEDULED, State.RUNNING, State.INPUT_REQUIRED, State.CANCEL_REQUESTED, State.CANCELLING}
)

_ENDED_BADLY = {Signal.RETRY: State.QUEUED, Signal.EXPIRE: State.EXPIRED}
# A tool that finished first stays succeeded; whatever else happens to a task that is
# being cancelled, it ends as cancelled.
_BEING_CANCELLED = {
    Signal.SUCCEED: State.SUCCEEDED,
    Signal.CONFIRM: State.CANCELLED,
    Signal.FAIL: State.CANCELLED,
    Signal.RETRY: State.CANCELLED,
    Signal.HAND_BACK: State.CANCELLED,
    Signal.TIME_OUT: State.CANCELLED,
}
_UNDER_WAY = {
    Signal.SUCCEED: State.SUCCEEDED,
    Signal.FAIL: State.FAILED,
    Signal.RETRY: State.QUEUED,
    Signal.HAND_BACK: State.QUEUED,
    Signal.TIME_OUT: State.TIMED_OUT,
    Signal.CANCEL: State.CANCEL_REQUESTED,
}

TRANSITIONS: Mapping[State, Mapping[Signal, State]] = MappingProxyType(
    {
        State.QUEUED: {
            Signal.CLAIM: State.SCHEDULED,
            Signal.CANCEL: State.CANCELLED,
            Signal.FAIL: State.FAILED,
            Signal.EXPIRE: State.EXPIRED,
        },
        State.SCHEDULED: {
            Signal.START: State.RUNNING,
            Signal.FAIL: State.FAILED,
            Signal.RETRY: State.QUEUED,
            Signal.HAND_BACK: State.QUEUED,
            Signal.CANCEL: State.CANCEL_REQUESTED,
        },
        State.RUNNING: {Signal.ASK: State.INPUT_REQUIRED, **_UNDER_WAY},
        State.INPUT_REQUIRED: {
            Signal.ASK: State.INPUT_REQUIRED,
            Signal.ANSWER: State.RUNNING,
            **_UNDER_WAY,
        },
        State.CANCEL_REQUESTED: {Signal.STOP: State.CANCELLING, **_BEING_CANCELLED},
        State.CANCELLING: dict(_BEING_CANCELLED),
        State.SUCCEEDED: {Signal.EXPIRE: State.EXPIRED},
        State.FAILED: dict(_ENDED_BADLY),
        State.CANCELLED: dict(_ENDED_BADLY),
        State.TIMED_OUT: dict(_ENDED_BADLY),
        State.EXPIRED: {},
    }
)


def next_state(state: State, signal: Signal) -> State | None:
    """The state that `signal` leads to from `state`, or None where the table forbids it."""
    return TRANSITIONS[state].get(signal)
