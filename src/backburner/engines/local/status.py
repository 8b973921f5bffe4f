"""Supervisor liveness check for doctor, status and /healthz, and reports of persistent write failures."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...core.files import read_json, write_json
from ...core.times import SystemClock
from ...errors import StoreError
from ...settings import Settings
from ...store.protocol import Store
from .lock import SupervisorLock, is_detached
from .processes import linux

#: Failures of a moment are not reported.
_REPORT_AFTER_S = 3.0


class WriteFailures:
    """Reports persistent write failures of a supervisor to health checks, in a file.

    Its heartbeats may still arrive then.
    """

    def __init__(self, data_dir: Path, supervisor_id: str) -> None:
        self._path = _failure_file(data_dir)
        self._supervisor_id = supervisor_id
        self._since: float | None = None
        self._reported = False

    def add(self, error: StoreError) -> None:
        if self._since is None:
            self._since = time.monotonic()
        if not self._reported and time.monotonic() - self._since >= _REPORT_AFTER_S:
            with contextlib.suppress(OSError):
                report = {"supervisor_id": self._supervisor_id, "reason": str(error)}
                write_json(self._path, report, synced=False)
                self._reported = True

    def clear(self) -> None:
        """Note that a write has succeeded."""
        self._since = None
        if self._reported:
            self._reported = False
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)


def write_failure(data_dir: Path, supervisor_id: object) -> str | None:
    """Return why the store refuses the writes of this supervisor, if it does."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        report = read_json(_failure_file(data_dir))
        if report.get("supervisor_id") == supervisor_id:
            return str(report.get("reason"))
    return None


def _failure_file(data_dir: Path) -> Path:
    return data_dir / "supervisor.write-failure"


@dataclass(frozen=True, slots=True)
class SupervisorStatus:
    """Status of a host's supervisor of a store.

    `absent`: the lock is free. `starting`: no heartbeat has arrived yet. `working`: heartbeats arrive.
    `stopped`: a signal has stopped its process. `silent`: no heartbeat arrived for `silent_s`; it hangs, or
    cannot reach its store. It is `detached` when a server has started it.
    """

    state: Literal["absent", "starting", "working", "stopped", "silent"]
    pid: int | None = None
    supervisor_id: str = ""
    silent_s: float = 0.0
    version: str = ""
    detached: bool = True
    since_at: int | None = None


def supervisor_status(store: Store, settings: Settings, data_dir: Path) -> SupervisorStatus:
    """Return the status of the supervisor of this host and store. Raises StoreError."""
    holder = SupervisorLock(data_dir).holder()
    if holder is None:
        return SupervisorStatus("absent")
    pid, started = holder.get("pid"), holder.get("started")
    if not isinstance(pid, int):
        pid = None
    here = pid is not None and linux.is_running(pid, started)
    supervisor_id = str(holder.get("supervisor_id"))
    heard = [each for each in store.workers() if each.supervisor_id == supervisor_id]
    if heard:
        silent_s = max(0.0, (store.now_ms() - max(each.last_heartbeat for each in heard)) / 1000)
    else:
        silent_s = _age_s(started) if here and isinstance(started, int) else 0.0
    state: Literal["starting", "working", "stopped", "silent"] = "working" if heard else "starting"
    if here and pid is not None and linux.is_stopped(pid):
        state = "stopped"
    elif silent_s > settings.supervisor.lease_grace_s:
        state = "silent"
    return SupervisorStatus(
        state=state,
        pid=pid,
        supervisor_id=supervisor_id,
        silent_s=silent_s,
        version=str(holder.get("version") or ""),
        detached=is_detached(holder),
        since_at=holder.get("since"),
    )


def _age_s(started: int) -> float:
    """Return the age of a process that began so many ticks after the boot."""
    return SystemClock().uptime_ms() / 1000 - started / os.sysconf("SC_CLK_TCK")
