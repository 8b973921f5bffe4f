"""For those who look at a store from outside: what happens, what ended when, and which queues are paused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from .lifecycle import State
from .task import Event

#: Spans of time are sorted by these, in milliseconds; what is longer than the last is the longest kind.
LATENCY_BOUNDS_MS = (
    *(10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000),
    *(300_000, 900_000, 3_600_000, 14_400_000, 86_400_000),
)
#: So many events can be read in the order in which they happened, counted from the latest.
EVENTS_IN_ORDER = 200_000


@dataclass(frozen=True, slots=True)
class Happening:
    """An event, its task's owner, tool and queue, and its `place` in the order of all events of a store."""

    place: str
    owner: str
    tool_name: str
    queue: str
    event: Event


@dataclass(frozen=True, slots=True)
class Happenings:
    """Events after a place, in the order of their commits, and the place to go on from.

    `missed` says that there were more, which are not kept in order any more; `more`, that more are there.
    """

    events: Sequence[Happening]
    place: str
    missed: bool = False
    more: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """How many tasks ended in one stretch of time with one state, wait and run.

    `wait` and `run` are places in LATENCY_BOUNDS_MS: the first bound that is longer. A task that never
    started waited until its end, and has no run.
    """

    stretch: int
    state: State
    wait: int | None
    run: int | None
    tasks: int


@dataclass(frozen=True, slots=True)
class PausedQueue:
    """A queue whose tasks wait until somebody resumes it. Those that were begun go on."""

    queue: str
    paused_at: int
    paused_by: str


class LookingStore(Protocol):
    """The verbs of a store for those who look, and who stop queues."""

    def happenings(self, after: str | None = None, limit: int = 500) -> Happenings:
        """The events after a place, each once and none left out; with None, none, and where the next will be.

        Raises InvalidCursor for what is no place.
        """
        ...

    def forget_order(self, keep: int = EVENTS_IN_ORDER) -> None:
        """Forget the order of all but the latest events; the events themselves stay."""
        ...

    def ended(
        self,
        since: int,
        until: int,
        every_ms: int,
        *,
        owner: str | None = None,
        tool_name: str | None = None,
        queue: str | None = None,
    ) -> list[Ended]:
        """What ended from `since` on and before `until`; the first stretch of `every_ms` begins at
        `since`."""
        ...

    def pause_queue(self, queue: str, by: str) -> None:
        """Let no task of this queue begin until it is resumed; harmless if it is paused already."""
        ...

    def resume_queue(self, queue: str) -> None: ...

    def paused_queues(self) -> list[PausedQueue]: ...
