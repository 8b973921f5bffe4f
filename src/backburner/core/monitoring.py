"""Records for monitoring: the event feed, completions, paused queues and client timeouts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from .lifecycle import State
from .task import Event


class FeedCursor(Struct, frozen=True, order=True):
    """Position of a reader in the audit trails: time, task and line of the last event read."""

    at: int
    task_id: str = ""
    seq: int = 0


class Completion(Struct, frozen=True):
    """End of an attempt, or of a task that was never started, from its audit trail.

    `state` is the state afterwards: `queued` before a retry. `outcome` is succeeded, failed, cancelled,
    timed_out, handed_back or lost; None without an attempt. `waited_s` is the time since the task was last
    queued, with the pause before a retry; `ran_s` the run time. Both are None for a task that never began.
    """

    mark: FeedCursor
    tool_name: str
    queue: str
    state: State
    outcome: str | None
    waited_s: float | None
    ran_s: float | None


#: Spans of time are sorted by these, in milliseconds; what is longer than the last is the longest kind.
LATENCY_BOUNDS_MS = (
    *(10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000),
    *(300_000, 900_000, 3_600_000, 14_400_000, 86_400_000),
)
#: So many events can be read in the order in which they happened, counted from the latest.
EVENTS_IN_ORDER = 200_000


class FeedEvent(Struct, frozen=True):
    """An event, its task's owner, tool and queue, and its `place` in the order of all events of a store."""

    place: str
    owner: str
    tool_name: str
    queue: str
    event: Event


class FeedPage(Struct, frozen=True):
    """Events after a place, in the order of their commits, and the place to go on from.

    `missed` says that there were more, which are not kept in order any more; `more`, that more are there.
    """

    events: Sequence[FeedEvent]
    place: str
    missed: bool = False
    more: bool = False


class Ended(Struct, frozen=True):
    """Count of tasks that ended in one interval with one state, wait class and run class.

    `wait` and `run` are indexes into LATENCY_BOUNDS_MS: the first bound that is longer. A task that never
    started waited until its end, and has no run.
    """

    stretch: int
    state: State
    wait: int | None
    run: int | None
    tasks: int


class PausedQueue(Struct, frozen=True):
    """A queue whose waiting tasks start after an operator resumes it. Running tasks go on."""

    queue: str
    paused_at: int
    paused_by: str


#: So many time-outs of one client are kept, and so many of all: names come from clients.
KEPT_OF_A_CLIENT, KEPT_OF_ALL = 10, 1000

Transport = Literal["stdio", "http"]


class ClientTimeout(Struct, frozen=True):
    """A client gave a held call up after `waited_ms`, the last `silent_ms` of them without progress."""

    name: str
    version: str
    transport: Transport
    seen_at: int
    waited_ms: int
    silent_ms: int
