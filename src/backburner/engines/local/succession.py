"""One supervisor in another's place while that goes on with what it has under way (docs/decisions/0018)."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...clock import SystemClock
from ...version import VERSION
from . import linux
from .supervisor_lock import SupervisorLock

#: What asks a supervisor to retire. Those of releases that signed no version would die of it.
RETIRE = signal.SIGUSR1

#: How long one that retires keeps its lock for who asked it to.
_SUCCESSOR_COMES_MS = 10_000
_ASK_AGAIN_S = 0.5
_LOOK_EVERY_S = 0.02

Holder = dict[str, Any]


class Tenure:
    """How a supervisor has its lock: until it is superseded, or retires and a successor has it."""

    def __init__(self, lock: SupervisorLock, fd: int, supervisor_id: str) -> None:
        self.lock = lock
        self.supervisor_id = supervisor_id
        self._fd = fd
        self._sign_of_life: int | None = None
        self._handed_over_by: int | None = None
        self._clock = SystemClock()

    @property
    def is_lost(self) -> bool:
        """Whether another has taken its place without asking. One that has retired needs no place."""
        return self._sign_of_life is None and self.lock.is_superseded(self._fd)

    def retire(self) -> None:
        """Let a successor have the lock, and from now on show in another way that this one is alive."""
        self._sign_of_life = self.lock.retire(self._fd, self.supervisor_id)
        self._handed_over_by = self._clock.steady_ms() + _SUCCESSOR_COMES_MS

    def is_handing_over(self) -> bool:
        """Whether it keeps the lock for a successor. When that has it, or does not come, it is let go."""
        if self._handed_over_by is None:
            return False
        if self._clock.steady_ms() < self._handed_over_by and not self.lock.is_superseded(self._fd):
            return True
        self._handed_over_by = None
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        return False

    def end(self) -> None:
        """The supervisor is over."""
        try:
            self.lock.leave(self._fd, self.supervisor_id)
        finally:
            os.close(self._fd)
        if self._sign_of_life is not None:
            self.lock.forget_retired(self.supervisor_id)
            os.close(self._sign_of_life)


class Succession:
    """Takes the lock over from its holder, if that is one which `wanted` names."""

    def __init__(self, lock: SupervisorLock, wanted: Callable[[Holder], bool]) -> None:
        self._lock = lock
        self._wanted = wanted
        self._told: list[Holder] = []

    def take(self, within_s: float) -> int | None:
        """The lock's descriptor; None when the holder is not one to be asked, or has not let go by then.

        One that does not know how to hand over is told to stop, and lets go when its tasks are over.
        """
        ask_at = began = time.monotonic()
        while (fd := self._lock.take()) is None:
            seen = self._lock.seen()
            holder, now = seen[1], time.monotonic()
            if holder.get("retiring"):
                fd = self._lock.supersede(seen)
                if fd is not None:
                    return fd
            elif "supervisor_id" in holder and not self._wanted(holder):
                return None
            elif isinstance(holder.get("pid"), int) and now >= ask_at:  # else it has only begun
                ask_at = now + _ASK_AGAIN_S
                self._ask(holder)
            if now - began >= within_s:
                return None
            time.sleep(_LOOK_EVERY_S)
        return fd

    def _ask(self, holder: Holder) -> None:
        if "version" in holder:
            linux.signal_process(holder["pid"], holder.get("started"), RETIRE)
        elif holder not in self._told:  # a second signal would mean: at once
            self._told.append(holder)
            linux.signal_process(holder["pid"], holder.get("started"), signal.SIGTERM)


def unless_another_supervises(lock: SupervisorLock, within_s: float) -> int | None:
    """The lock's descriptor; None when another supervisor has it, or who is about to start one.

    Whoever looks at the lock, or waited for it in vain, holds it for a moment too, and signs nothing.
    """
    return Succession(lock, lambda _: False).take(within_s)


def started_by_itself(holder: Holder) -> bool:
    """Whether the holder is detached: a server has started it, and no person or service stands by it."""
    if "detached" in holder:
        return bool(holder["detached"])
    try:
        return b"backburner.supervise" in Path(f"/proc/{holder.get('pid')}/cmdline").read_bytes()
    except OSError:
        return False


def is_of_older_version(holder: Holder) -> bool:
    """Whether the holder's Backburner is an earlier release than this one."""
    version = holder.get("version")
    return not isinstance(version, str) or _order(version) < _order(VERSION)


def _order(version: str) -> tuple[list[int], str]:
    """Any two versions have an order, so that no two servers replace each other's supervisors for ever."""
    return [int(number) for number in re.findall(r"\d+", version)], version
