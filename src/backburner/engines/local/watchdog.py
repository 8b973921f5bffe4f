"""Ending runners whose time is over while the supervisor's loop waits for its store."""

from __future__ import annotations

import threading

from ...clock import Clock
from .child_processes import RunnerProcess

#: The loop comes first: it can say why.
_AFTER_THE_LOOP_MS = 500


class Watchdog:
    """Has a runner ended when its moment has come and nobody has spared it, on a thread of its own.

    The loop does the same, and more gently. But it waits for the store at times, and a limit does not.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._moments: dict[RunnerProcess, int] = {}
        self._changed = threading.Condition()
        self._wakes_at: float = float("inf")
        self._over = False
        self._thread = threading.Thread(target=self._watch, name="backburner-watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def end_at(self, runner: RunnerProcess, moment: int) -> None:
        """Have it ended soon after that moment of the steady clock, unless it is spared before."""
        with self._changed:
            self._moments[runner] = moment = moment + _AFTER_THE_LOOP_MS
            if moment < self._wakes_at:
                self._changed.notify()

    def spare(self, runner: RunnerProcess) -> None:
        """It has ended, or what it was at."""
        with self._changed:
            self._moments.pop(runner, None)

    def _watch(self) -> None:
        with self._changed:
            while not self._over:
                now = self._clock.steady_ms()
                for runner in [runner for runner, moment in self._moments.items() if moment <= now]:
                    del self._moments[runner]
                    runner.zygote.end(runner)
                self._wakes_at = min(self._moments.values(), default=float("inf"))
                self._changed.wait((self._wakes_at - now) / 1000 if self._moments else None)
