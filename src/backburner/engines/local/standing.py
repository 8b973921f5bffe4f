"""Is the supervisor of this host alive, and if not, why: one judgement for everybody who asks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...clock import SystemClock
from ...config import Settings
from ...store import Store
from . import linux
from .succession import started_by_itself
from .supervisor_lock import SupervisorLock


@dataclass(frozen=True, slots=True)
class Standing:
    """How a host's supervisor of a store is.

    It is `absent` when nobody holds the lock, `starting` until its first heartbeat has arrived, and then
    `working`. It is `stopped` when a signal has stopped its process, and `silent` when its heartbeats do not
    arrive any more: it hangs, or is cut off from its store. `silent_s` is since when. It is `detached` when
    a server has started it, so that nobody stands by it; releases that did not say so sign no `version`.
    """

    state: Literal["absent", "starting", "working", "stopped", "silent"]
    pid: int | None = None
    supervisor_id: str = ""
    silent_s: float = 0.0
    version: str = ""
    detached: bool = True
    since_at: int | None = None


def supervisor_standing(store: Store, settings: Settings, data_dir: Path) -> Standing:
    """How the supervisor of this host and store is, as seen from another process. May raise StoreError."""
    holder = SupervisorLock(data_dir).holder()
    if holder is None:
        return Standing("absent")
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
    return Standing(
        state=state,
        pid=pid,
        supervisor_id=supervisor_id,
        silent_s=silent_s,
        version=str(holder.get("version") or ""),
        detached=started_by_itself(holder),
        since_at=holder.get("since"),
    )


def _age_s(started: int) -> float:
    """How long ago a process began that the kernel says began so many ticks after the boot."""
    return SystemClock().uptime_ms() / 1000 - started / os.sysconf("SC_CLK_TCK")
