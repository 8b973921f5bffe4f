"""What has come to an end in a store, one after the other: what its metrics are counted from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from .lifecycle import State


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """How far somebody has read: up to this line of that task's audit trail, written then."""

    at: int
    task_id: str = ""
    seq: int = 0


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of an attempt, or of a task that nobody had begun with, as its audit trail has it.

    `state` is what the task became by it: `queued`, if it is to be tried again. `outcome` is how the attempt
    ended: succeeded, failed, cancelled, timed_out, handed_back or lost; None where there was none. It waited
    for `waited_s` since the task was last queued, with the pause before a retry, and then ran for `ran_s`;
    both are None for one that never began.
    """

    mark: Mark
    tool_name: str
    queue: str
    state: State
    outcome: str | None
    waited_s: float | None
    ran_s: float | None


class EndingStore(Protocol):
    """The verbs of a store by which it is measured."""

    def endings(self, after: Mark, until: int, limit: int = 10_000) -> list[Ending]:
        """What ended after that mark and not after that time, in order. The last one's mark leads on.

        Concurrent writers may still add something to the last moments before now.
        """
        ...

    def observe(self, seen: Callable[[str, float], object]) -> None:
        """From now on, tell how long each `read` and `write` of this process takes, in seconds."""
        ...
