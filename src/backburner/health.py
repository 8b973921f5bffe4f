"""Is a store in order, and does somebody work on it: the judgement of `doctor` and of `/healthz`."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from .config import Settings
from .engines.local.complaint import complaint_of
from .engines.local.standing import Standing, supervisor_standing
from .engines.local.supervisor_lock import SupervisorLock
from .errors import StoreError
from .store import Store
from .task import Worker

#: Less free space than this is a problem.
TOO_LITTLE_BYTES = 100 << 20


class Trouble(StrEnum):
    """What keeps tasks from being done, in words that name nothing: anybody may read them."""

    UNREADABLE = "the store cannot be read"
    UNWRITABLE = "the store cannot be written"
    NO_ANSWER = "the store does not answer"
    NO_SPACE = "the disk is full, or nearly"
    NOBODY_WORKS = "tasks wait, and nobody works on them"
    STOPPED = "the supervisor was stopped by a signal"
    SILENT = "the supervisor is not heard any more"
    REFUSED = "the store refuses what the supervisor writes"
    NO_NEWS = "the wake folder is gone and cannot be made again"

    @property
    def of_supervisor(self) -> bool:
        """Whether it is the supervisor's; else it is the store's."""
        return self in (Trouble.NOBODY_WORKS, Trouble.STOPPED, Trouble.SILENT, Trouble.REFUSED)


@dataclass(frozen=True, slots=True)
class QueueUse:
    """How busy the queues are together. `full` are those that take no more tasks."""

    queued: int = 0
    running: int = 0
    full: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Supervision:
    """Who works on a store. `standing` is how the supervisor of this host is.

    `live` are the workers, of any host, that were heard within the grace time and are not known to
    be dead. `reason` is for the operator: it may name paths.
    """

    standing: Standing
    live: list[Worker]
    trouble: Trouble | None = None
    reason: str = ""


def troubles(store: Store, settings: Settings, data_dir: Path) -> Iterator[Trouble]:
    """All that is wrong. Reads and writes a row or two; may take as long as the store does."""
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
    """Raises StoreError."""
    depths = store.queue_depths()
    caps = {name: queue.max_length for name, queue in settings.queues.items()}
    full = frozenset(
        depth.queue for depth in depths if depth.queued >= caps.get(depth.queue, depth.queued + 1)
    )
    return QueueUse(sum(depth.queued for depth in depths), sum(depth.leased for depth in depths), full)


def supervision_of(store: Store, settings: Settings, data_dir: Path) -> Supervision:
    """Who works on the store, and whether that is somebody at all. Raises StoreError."""
    standing = supervisor_standing(store, settings, data_dir)
    live = _live(store, settings, data_dir, standing)
    match standing.state:
        case "absent":
            wanted = not live and any(depth.queued or depth.leased for depth in store.queue_depths())
            return Supervision(standing, live, Trouble.NOBODY_WORKS if wanted else None)
        case "stopped":
            return Supervision(standing, live, Trouble.STOPPED)
    refused = complaint_of(data_dir, standing.supervisor_id)
    if refused is not None:
        return Supervision(standing, live, Trouble.REFUSED, refused)
    return Supervision(standing, live, Trouble.SILENT if standing.state == "silent" else None)


def _live(store: Store, settings: Settings, data_dir: Path, standing: Standing) -> list[Worker]:
    """Workers of a supervisor whose lock is free are dead, however lately they were heard.

    Unless it has retired, and finishes what it has under way.
    """
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
    """How the ids of all that ever held this host's lock begin."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return f"sup_{json.loads(SupervisorLock(data_dir).path.read_text())['place']}_"
    return None


def news_can_come(store: Store) -> bool:
    """Whether processes of this host can wake each other; the folder for that is made again if it is gone."""
    if not store.url.startswith("sqlite:"):
        return True
    from .stores.sqlite import sqlite_path, wake_folder

    with contextlib.suppress(OSError, StoreError):
        store.watch().close()
    return wake_folder(sqlite_path(store.url)).is_dir()
