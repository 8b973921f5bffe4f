"""Tasks that were given to a queue outside: the record of one, and what a store does with them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from .lifecycle import State
from .task import Task


@dataclass(frozen=True, slots=True)
class HandOut:
    """A task that an engine gave to its queue for the task's next attempt.

    `job` is the queue's own name for it; empty where none is known: then it may be there or not. `state` is
    the task's, and `waits` says whether that attempt has not begun. `ended` counts jobs that ended and never
    began it. Times are the store's.
    """

    task_id: str
    engine: str
    queue: str
    attempt: int
    job: str
    handed_at: int
    ended: int
    state: State
    waits: bool

    @property
    def came_back(self) -> bool:
        """Whether that attempt began, and the task waits for another one."""
        return self.state is State.QUEUED and not self.waits


class HandOutStore(Protocol):
    """The verbs of a store about tasks that are worked on by an outside queue."""

    def begin_hand_out(
        self,
        engine: str,
        queues: Sequence[str],
        *,
        task_ids: Sequence[str] | None = None,
        but_not: Collection[str] = (),
        limit: int = 100,
    ) -> list[Task]:
        """Tasks that are ready in these queues and were not handed out for their next attempt, best first.

        A new task that is `handed_to` an engine is handed out by its submitter.

        They count as handed out now, with no job, so that no other process hands them out as well. With
        `task_ids`, only those of them; `but_not` are left for later.
        """
        ...

    def handed_out(self, jobs: Mapping[str, str]) -> None:
        """The names of these tasks' jobs are known."""
        ...

    def not_handed_out(self, task_ids: Sequence[str], problem: str, again_in_ms: int) -> None:
        """Their queue did not take them. They say why they wait, and are ready to be handed out later."""
        ...

    def hand_outs(self, engine: str) -> list[HandOut]:
        """All that this engine has handed out and not taken back."""
        ...

    def take_back(self, task_ids: Sequence[str], *, ended: bool = False) -> None:
        """These have no job any more: who still waits is handed out again; `ended` counts one that ended."""
        ...
