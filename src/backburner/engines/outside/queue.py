"""The OutsideQueue protocol: what Backburner asks of Dramatiq, Celery, Slurm or AWS Batch.

It carries the ids of tasks and nothing else. The store stays the truth: who gets an id leases the task there
before the first line of it runs, so an id that comes twice runs once, and one that is lost is sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from ...errors import EngineError
from ...hand_out import HandOut
from ...task import Task

#: Gives the secret of the store; raises StoreError. With it, an engine makes tokens for the server's door.
Secret = Callable[[], bytes]


@dataclass(frozen=True, slots=True)
class Sighting:
    """What a queue knows of a job: it is `there`, waiting or at work; it is over, and how; or nothing.

    - `ended`, by itself: that counts against its task; after a few that began nothing, the task fails, and
      the `output` of the last one is in the task's log.
    - `cancelled` by somebody, or `failed` with a `code`, as the queue did not let it go on: so ends its task.
    - `ending`: it will soon be known how.
    - `lost`: it is sent again at once; `unknown`: after a while.
    """

    state: Literal["there", "ending", "ended", "cancelled", "failed", "lost", "unknown"]
    reason: str = ""
    code: str = ""
    output: str = ""


class PartlyTaken(EngineError):
    """The engine {engine} could not do it: {reason}."""

    def __init__(
        self, jobs: Mapping[str, str], error: EngineError, reasons: Mapping[str, str] | None = None
    ) -> None:
        """Some tasks were handed out, with these jobs, and the others not.

        `reasons` has why for tasks with reasons of their own, by their ids; it is `error` for the others.
        """
        super().__init__(**error.details)
        self.jobs = jobs
        self.reasons = reasons or {}


class OutsideQueue(Protocol):
    """A queue of an engine. Every verb may raise EngineError, with what to do; then it is tried again."""

    name: str

    def hand_out(self, tasks: Sequence[Task]) -> Mapping[str, str]:
        """Give it these tasks, all of one queue of ours; the job of each by its id, or "" for no name.

        Raises PartlyTaken where it took some of them.
        """
        ...

    def look(self, handed_out: Sequence[HandOut]) -> Mapping[str, Sighting]:
        """What became of jobs whose tasks wait, as ever or again; what is left out is `unknown`."""
        ...

    def withdraw(self, handed_out: Sequence[HandOut]) -> None:
        """The tasks of these need no job any more: end those that are there. Harmless for others."""
        ...

    def close(self) -> None: ...
