"""The zygotes that a supervisor has: one for each origin that is needed, and those on their way out."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from pathlib import Path

from ...clock import Clock
from ...config import Settings
from .child_processes import Origin, RunnerProcess, ZygoteProcess
from .hold import Hold
from .launches import Launch, Launches

#: So many apps are kept imported; the one that was not needed for longest goes first.
_MOST = 8

#: Room in a message for all but its result or checkpoint.
_SMALL_PARTS = 8_000_000


class Zygotes:
    """Those that fork, by origin, and the `retired` ones, which fork no more and end with their runners."""

    def __init__(
        self, settings: Settings, supervisor_id: str, clock: Clock, hold: Hold, data_dir: Path
    ) -> None:
        self._launches = Launches(data_dir, own_only=settings.supervisor.environment == "own")
        self._supervisor_id = supervisor_id
        self._clock = clock
        self._hold = hold
        # In a message a text is JSON within JSON, where a character may take six bytes.
        limits = settings.limits
        self._largest_message = _SMALL_PARTS + 6 * max(limits.max_result_bytes, limits.max_checkpoint_bytes)
        self._forking: dict[Origin, ZygoteProcess] = {}
        self.retired: list[ZygoteProcess] = []

    def __iter__(self) -> Iterator[ZygoteProcess]:
        return iter([*self._forking.values(), *self.retired])

    def of(self, origin: Origin) -> ZygoteProcess | None:
        """The one that forks for this origin, if there is one."""
        found = self._forking.pop(origin, None)
        if found is not None:
            self._forking[origin] = found  # the last one that was needed is the last in the dict
        return found

    def start(self, origin: Origin) -> ZygoteProcess:
        """A new one for this origin, on what the launch stood on, or on what the supervisor stands on."""
        launch = self._launches.find(origin.launch) or Launch()
        started = ZygoteProcess(
            origin, launch, self._supervisor_id, self._clock, self._hold, self._largest_message
        )
        self._forking[origin] = started
        return started

    def too_many(self) -> list[ZygoteProcess]:
        """Those that had better retire for others."""
        return [*self._forking.values()][:-_MOST]

    def retire(self, zygote: ZygoteProcess) -> None:
        if self._forking.get(zygote.origin) is zygote:
            del self._forking[zygote.origin]
        if zygote not in self.retired:
            self.retired.append(zygote)

    def await_ends(self, on_exit: Callable[[RunnerProcess, int], None], within_s: float) -> None:
        """Wait until their runners have ended, which have been let go of; see `ZygoteProcess.read`."""
        deadline = self._clock.steady_ms() + int(within_s * 1000)
        while left := [zygote for zygote in self if not zygote.gone and zygote.has_runners_alive]:
            poller = select.poll()
            for zygote in left:
                poller.register(zygote.control, select.POLLIN)
            if not poller.poll(max(0, deadline - self._clock.steady_ms())):
                return
            for zygote in left:
                zygote.read(on_exit)
