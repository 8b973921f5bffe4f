"""What a store does for its keeper: leases that were lost, retries that are due, tasks that are old."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from .limits import Limits


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease as others see it. `limit_ms` is how long the attempt may take; None until it has begun."""

    task_id: str
    attempt: int
    worker_id: str | None
    heartbeat_at: int
    limit_ms: int | None


class KeepsHouse(Protocol):
    """For the one keeper of a store, whichever host it is on."""

    def keep(self, holder: str, lease_s: float) -> bool:
        """Become, or stay, the one keeper for `lease_s` seconds; False when somebody else is."""
        ...

    def leases(self) -> list[HeldLease]:
        """Every lease that is held now, with its latest heartbeat."""
        ...

    def lose(self, *, silent: Sequence[HeldLease] = (), workers: Sequence[str] = ()) -> list[str]:
        """End the attempts of lost workers, by their policy. What was heard of meanwhile is left alone."""
        ...

    def make_ready(self) -> list[str]:
        """Put due retries in line."""
        ...

    def look_at_limits(self, limits: Limits) -> None:
        """Let go what limits hold that have room by now: they may be wider than they were, or gone."""
        ...

    def ready_in_ms(self) -> int | None:
        """How long it is until the next retry falls due; 0 when one is due."""
        ...

    def time_out(self, overdue: Sequence[HeldLease]) -> list[str]:
        """End these attempts as timed out, those that are still under way."""
        ...

    def expire(self, limit: int = 500) -> list[str]:
        """Expire tasks past their time to live: their results, inputs, logs and artifact records go."""
        ...

    def purge(self, before: int, limit: int = 500) -> list[str]:
        """Forget tasks that expired before then, wholly."""
        ...

    def pack_logs(self, finished_before: int, limit: int = 100) -> list[str]:
        """Compress what is not yet of the logs of tasks that finished before then, some of it at a time."""
        ...

    def launches(self) -> set[str]:
        """The launches that tasks name which are not finished."""
        ...

    def follow_clock(self) -> None:
        """Where the store goes by this host's wall clock and somebody set that: move what falls due along."""
        ...

    def forget_runtimes(self, keep: int = 500) -> int:
        """Drop all but the latest runtimes of each tool."""
        ...
