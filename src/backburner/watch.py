"""Hearing of what changes in a store: the Watch protocol, and the topics."""

from __future__ import annotations

from typing import Protocol

#: Topics are `task:<task_id>` (its state, progress, questions or logs changed), `steer:<task_id>` (its holder
#: must look: it was cancelled or answered) and `queue:<name>` (a task can be claimed there). `*` means that
#: anything may have changed.
ANYTHING = "*"
STEER = "steer:"


def of_steering(topics: set[str]) -> set[str]:
    """What a watch hears that is for the holders of tasks alone."""
    return {topic for topic in topics if topic.startswith(STEER) or topic == ANYTHING}


class Watch(Protocol):
    """Hears what changes in a store, from any process, within milliseconds and without polling.

    A watch may hear too much (`*`, or a change that was seen already). It hears too little only
    when what it hears by was destroyed, or when a writer died between its commit and the news of
    it: so who waits looks into the store too, now and then, and calls `mend`.
    """

    def fileno(self) -> int:
        """Readable when there may be something to `drain`; fits select, selectors and asyncio."""
        ...

    def drain(self) -> set[str]:
        """The topics heard since the last drain; never blocks."""
        ...

    def wait(self, timeout_s: float | None = None) -> set[str]:
        """Block until something was heard, or the time is over; then as `drain`."""
        ...

    def mend(self) -> None:
        """Make again what it hears by, if that is gone. Cheap, and never fails."""
        ...

    def close(self) -> None: ...
