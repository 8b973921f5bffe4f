"""Starts supervisors: as a program (`python -m backburner.supervise`) and for the command line."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from .core.files import tasks_folder
from .core.task import Task
from .engines.local.lock import RETIRE, HeldLock, SupervisorLock, mark_of, take_if_free
from .engines.local.processes.launches import Launches
from .engines.local.supervisor.background import BackgroundWork, Repeated
from .engines.local.supervisor.batch import AllQueues, OneTask, work_is_left
from .engines.local.supervisor.supervisor import Supervisor
from .errors import StoreError
from .observability.logging import set_up
from .settings import Settings
from .store import open_store
from .store.artifacts import Removal, open_artifacts
from .store.protocol import Store, WorkerStore

# Intervals of background work.
_PROMPTS_S = 1.0
_WEBHOOKS_S = 0.5
_REMOVAL_S = 1.0
_LAUNCHES_S = 3600.0
#: How long a supervisor that exits tries to take its lock again when work has come in.
_ONCE_MORE_S = 5.0


def supervise(
    store: Store,
    settings: Settings,
    data_dir: Path,
    lock_fd: int,
    warm: Sequence[tuple[str, str]],
    on_ready: Callable[[str], object],
    *,
    detached: bool,
) -> None:
    """Run the host's supervisor of a store until its end, under a lock that this process holds already.

    `on_ready` is called once, with its id, when it can take tasks. The lock is released at the end.
    For `warm` see Supervisor.run.
    """
    signal.signal(RETIRE, signal.SIG_IGN)  # it may come as soon as the lock names us, before the loop runs
    store.wait_for_writers(settings.supervisor.heartbeat_s)
    lock = SupervisorLock(data_dir)
    held: int | None = lock_fd
    while held is not None:
        supervisor_id = lock.sign(held, os.getpid(), detached=detached, store=mark_of(store))
        if supervisor_id is None:
            os.close(held)
            return
        held_lock = HeldLock(lock, held, supervisor_id)
        try:
            # Without local workers, new tasks concern only the external ones.
            watch = store.watch(steering=not settings.local_workers)
            source = AllQueues(store, settings, held_lock, watch)
            supervisor = Supervisor(store, settings, data_dir, supervisor_id, source, watch)
            upkeep = _upkeep(supervisor_id, store, settings, data_dir)
            was_idle = supervisor.run(upkeep, warm=warm, on_ready=partial(on_ready, supervisor_id))
            if held_lock.is_lost:
                _give_back(store, supervisor_id)
        finally:
            held_lock.release()
        # Work may have come in at the very end: check once more without the lock.
        again = was_idle and work_is_left(store, settings, held=False)
        held = take_if_free(lock, _ONCE_MORE_S) if again else None
        on_ready = str


def _give_back(store: Store, supervisor_id: str) -> None:
    """Give back the tasks that a superseded supervisor still holds; its runners have ended."""
    with contextlib.suppress(StoreError):
        own = [each.worker_id for each in store.workers() if each.supervisor_id == supervisor_id]
        store.lose(workers=own)
        store.remove_workers(supervisor_id)


def run_task(
    store: WorkerStore,
    settings: Settings,
    data_dir: Path,
    task: Task,
    supervisor_id: str | None = None,
    *,
    target: str = "",
) -> bool:
    """Lease one task and run one attempt of it in this process; return whether it could be leased.

    `target` is the app on this host, if it differs from that of the task. The host's supervisor, if there is
    one, keeps doing the upkeep of the store.
    """
    source = OneTask(store, task, settings.limits.of_running, target=target)
    # The id of the job, where there is one, leads to its log.
    place = os.environ.get("AWS_BATCH_JOB_ID") or secrets.token_hex(4)
    supervisor_id = supervisor_id or f"sup_{place}_{secrets.token_hex(4)}"
    Supervisor(store, settings, data_dir, supervisor_id, source, store.watch()).run()
    return source.lease is not None


def _upkeep(supervisor_id: str, store: Store, settings: Settings, data_dir: Path) -> list[BackgroundWork]:
    """Return the background work of a host's supervisor: sweeps, webhooks, removal of files, prompt logs."""
    # Imported here: `run-task` needs none of it, and starts for each task.
    from .engines.external import DispatchLoop
    from .engines.keeper import Keeper
    from .mcp.dialects.task_id.prompt_log import PromptLogs
    from .service.webhooks import WebhookSender

    artifacts = open_artifacts(settings.artifacts, tasks_folder(data_dir))
    removal = Removal(artifacts)
    remove = removal.soon if artifacts.elsewhere else artifacts.remove
    keeper = Keeper(store, settings, supervisor_id, remove_files=remove)
    prompts = PromptLogs(store, settings, data_dir)
    launches = Launches(data_dir)
    sender = WebhookSender(store, settings.webhook)
    dispatch = DispatchLoop(store, settings, supervisor_id)
    webhooks = Repeated("webhooks", sender.send_due, pause_s=_WEBHOOKS_S)
    return [
        *([webhooks] if settings.webhook.is_used else []),
        *([Repeated("artifacts", removal.catch_up, pause_s=_REMOVAL_S)] if artifacts.elsewhere else []),
        *(dispatch.as_background() if settings.outside_engines else []),
        Repeated("launches", lambda: launches.prune(store), pause_s=_LAUNCHES_S),
        Repeated("keeper", keeper.sweep, pause_s=settings.supervisor.keeper_interval_s),
        Repeated("prompt-log", prompts.catch_up, pause_s=_PROMPTS_S, at_the_end=True),
    ]


def main() -> None:
    """Read the configuration from stdin, and write to stdout when ready; all else goes to stderr."""
    config = json.load(sys.stdin)
    settings = Settings.from_json(config["settings"])
    set_up(settings.log)

    def report_ready(supervisor_id: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # the server that started it has ended
            os.write(1, b"ready\n")
        os.dup2(2, 1)

    store = open_store(settings.store, synchronous=settings.sqlite.synchronous)
    try:
        folder, warm = Path(settings.data_dir), config["warm"]
        supervise(store, settings, folder, int(sys.argv[1]), warm, report_ready, detached=True)
    finally:
        store.close()


if __name__ == "__main__":
    main()
