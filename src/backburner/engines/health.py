"""Health of a store and its supervisor, for `doctor`, `status` and `/healthz`."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ..core.task import Worker
from ..errors import StoreError
from ..settings import Settings
from ..store.protocol import Store
from .local.lock import SupervisorLock
from .local.status import SupervisorStatus, supervisor_status, write_failure

#: Less free space than this is a problem.
TOO_LITTLE_BYTES = 100 << 20


class Trouble(StrEnum):
    """Problems that keep tasks from running. The texts name nothing private: they are public."""

    UNREADABLE = "the store cannot be read"
    UNWRITABLE = "the store cannot be written"
    NO_ANSWER = "the store does not answer"
    NO_SPACE = "the disk is full, or nearly"
    NO_WORKERS = "tasks are waiting, and no worker is running"
    STOPPED = "the supervisor was stopped by a signal"
    SILENT = "the supervisor sends no heartbeats"
    REFUSED = "the store refuses what the supervisor writes"
    NO_NEWS = "the wake folder is missing and cannot be created"

    @property
    def of_supervisor(self) -> bool:
        """Return whether the supervisor has the problem, rather than the store."""
        return self in (Trouble.NO_WORKERS, Trouble.STOPPED, Trouble.SILENT, Trouble.REFUSED)


@dataclass(frozen=True, slots=True)
class QueueUse:
    """Load of all queues together. Those in `full` accept no more tasks."""

    queued: int = 0
    running: int = 0
    full: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Supervision:
    """Workers of a store. `standing` is the status of this host's supervisor.

    `live` are the workers, of any host, with a heartbeat within the grace time, unless they are known to
    be dead. `reason` is for the operator: it may name paths.
    """

    standing: SupervisorStatus
    live: list[Worker]
    trouble: Trouble | None = None
    reason: str = ""


def troubles(store: Store, settings: Settings, data_dir: Path) -> Iterator[Trouble]:
    """Yield all problems. Reads and writes a row or two; may take as long as the store does."""
    try:
        store.version()
        supervision = supervision_of(store, settings, data_dir)
    except StoreError:
        yield Trouble.UNREADABLE
        return
    if supervision.trouble is not None:
        yield supervision.trouble
    try:
        store.check_writable()
    except StoreError:
        yield Trouble.UNWRITABLE
    if not news_can_come(store):
        yield Trouble.NO_NEWS
    with contextlib.suppress(OSError):
        if shutil.disk_usage(data_dir).free < TOO_LITTLE_BYTES:
            yield Trouble.NO_SPACE


def queue_use(store: Store, settings: Settings) -> QueueUse:
    """Return the load of all queues. Raises StoreError."""
    depths = store.queue_depths()
    caps = {name: queue.max_length for name, queue in settings.queues.items()}
    full = frozenset(
        depth.queue for depth in depths if depth.queued >= caps.get(depth.queue, depth.queued + 1)
    )
    return QueueUse(sum(depth.queued for depth in depths), sum(depth.leased for depth in depths), full)


def supervision_of(store: Store, settings: Settings, data_dir: Path) -> Supervision:
    """Return the workers of a store, and what is wrong with them. Raises StoreError."""
    standing = supervisor_status(store, settings, data_dir)
    live = _live(store, settings, data_dir, standing)
    match standing.state:
        case "absent":
            wanted = not live and any(depth.queued or depth.leased for depth in store.queue_depths())
            return Supervision(standing, live, Trouble.NO_WORKERS if wanted else None)
        case "stopped":
            return Supervision(standing, live, Trouble.STOPPED)
    refused = write_failure(data_dir, standing.supervisor_id)
    if refused is not None:
        return Supervision(standing, live, Trouble.REFUSED, refused)
    return Supervision(standing, live, Trouble.SILENT if standing.state == "silent" else None)


def _live(store: Store, settings: Settings, data_dir: Path, standing: SupervisorStatus) -> list[Worker]:
    """Return live workers. Those of a supervisor whose lock is free are dead, unless it has retired."""
    oldest = store.now_ms() - settings.supervisor.lease_grace_s * 1000
    dead = _ids_of_holders(data_dir) if standing.state == "absent" else None
    retired = {one.get("supervisor_id") for one in SupervisorLock(data_dir).retired()}
    return [
        worker
        for worker in store.workers()
        if worker.last_heartbeat >= oldest
        and (worker.supervisor_id in retired or not (dead and worker.supervisor_id.startswith(dead)))
    ]


def _ids_of_holders(data_dir: Path) -> str | None:
    """Return the prefix of the ids of all supervisors of this host and store."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return f"sup_{json.loads(SupervisorLock(data_dir).path.read_text())['place']}_"
    return None


def news_can_come(store: Store) -> bool:
    """Return whether processes of this host can wake each other; recreates the folder for that."""
    if not store.url.startswith("sqlite:"):
        return True
    from ..store.sqlite import sqlite_path, wake_folder

    with contextlib.suppress(OSError, StoreError):
        store.watch().close()
    return wake_folder(sqlite_path(store.url)).is_dir()
