"""The one start of supervisors: as a program that the local engine starts, and for the command line.

`python -m backburner.supervise` is the program.
"""

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

from .artifacts import Removal, open_artifacts
from .config import Settings
from .engines.local.background import BackgroundWork, Repeated
from .engines.local.folder_owner import mark_of
from .engines.local.launches import Launches
from .engines.local.succession import RETIRE, Tenure, unless_another_supervises
from .engines.local.supervisor import Supervisor
from .engines.local.supervisor_lock import SupervisorLock
from .engines.local.work_source import AllQueues, OneTask, work_is_left
from .errors import StoreError
from .folders import tasks_folder
from .log_lines import set_up
from .store import Store
from .stores import open_store
from .task import Task
from .worker_store import WorkerStore

#: How often to look for ended tasks whose result belongs in the prompt log.
_PROMPTS_S = 1.0
#: How often to look for endpoints that are to be told of a task's end.
_WEBHOOKS_S = 0.5
#: How often to remove the files of tasks that are gone, where these are in a storage.
_REMOVAL_S = 1.0
#: For how long one that leaves tries to have its lock again when work has come in.
_ONCE_MORE_S = 5.0
#: How often to look for launches that nobody needs any more.
_LAUNCHES_S = 3600.0


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
    """Be the host's supervisor of a store until it is over, under a lock that this process holds already.

    `on_ready` is called once, with its id, when it can take tasks. The lock is free afterwards, or another's.
    For `warm` see Supervisor.run.
    """
    signal.signal(RETIRE, signal.SIG_IGN)  # who finds our name in the lock may ask before the loop can hear
    store.wait_for_writers(settings.supervisor.heartbeat_s)
    lock = SupervisorLock(data_dir)
    held: int | None = lock_fd
    while held is not None:
        supervisor_id = lock.sign(held, os.getpid(), detached=detached, store=mark_of(store))
        if supervisor_id is None:
            os.close(held)
            return
        tenure = Tenure(lock, held, supervisor_id)
        try:
            # Where all workers are elsewhere, only they need to hear of tasks.
            watch = store.watch(steering=not settings.local_workers)
            source = AllQueues(store, settings, tenure, watch)
            supervisor = Supervisor(store, settings, data_dir, supervisor_id, source, watch)
            upkeep = _upkeep(supervisor_id, store, settings, data_dir)
            was_idle = supervisor.run(upkeep, warm=warm, on_ready=partial(on_ready, supervisor_id))
            if tenure.is_lost:
                _give_back(store, supervisor_id)
        finally:
            tenure.end()
        # Work that came in at the very end would find nobody: look once more without the lock.
        again = was_idle and work_is_left(store, settings, held=False)
        held = unless_another_supervises(lock, _ONCE_MORE_S) if again else None
        on_ready = _say_nothing


def _give_back(store: Store, supervisor_id: str) -> None:
    """Give back the tasks that a superseded supervisor still holds; its runners have ended."""
    with contextlib.suppress(StoreError):
        own = [each.worker_id for each in store.workers() if each.supervisor_id == supervisor_id]
        store.lose(workers=own)
        store.remove_workers(supervisor_id)


def _say_nothing(supervisor_id: str) -> None: ...


def run_task(
    store: WorkerStore,
    settings: Settings,
    data_dir: Path,
    task: Task,
    supervisor_id: str | None = None,
    *,
    target: str = "",
) -> bool:
    """Lease one task and run one attempt of it in this process; whether it could be leased.

    `target` is the app here, if it is elsewhere than where the task was submitted.
    The host's supervisor, if there is one, is left alone, and the store's upkeep is left to it.
    """
    source = OneTask(store, task, settings.limits.of_running, target=target)
    # The name of the job, where there is one, is how its own log is found when it went away.
    place = os.environ.get("AWS_BATCH_JOB_ID") or secrets.token_hex(4)
    supervisor_id = supervisor_id or f"sup_{place}_{secrets.token_hex(4)}"
    Supervisor(store, settings, data_dir, supervisor_id, source, store.watch()).run()
    return source.lease is not None


def _upkeep(supervisor_id: str, store: Store, settings: Settings, data_dir: Path) -> list[BackgroundWork]:
    """What a host's supervisor does beside its tasks: it sweeps the store, tells endpoints, and so on."""
    # `run-task` does without all of this, and is started for each task where engines give it a machine.
    from .engines.outside.choosing import KeptRounds
    from .keeper import Keeper
    from .mcp.dialects.task_id.prompt_logs import PromptLogs
    from .webhooks.sender import WebhookSender

    artifacts = open_artifacts(settings.artifacts, tasks_folder(data_dir))
    removal = Removal(artifacts)
    remove = removal.soon if artifacts.elsewhere else artifacts.remove
    keeper = Keeper(store, settings, supervisor_id, remove_files=remove)

    # Also when no server is left to do it.
    prompts = PromptLogs(store, settings, data_dir)
    launches = Launches(data_dir)
    sender = WebhookSender(store, settings.webhook)
    handing_out = KeptRounds(store, settings, supervisor_id)
    telling = Repeated("webhooks", sender.send_due, pause_s=_WEBHOOKS_S)
    return [
        *([telling] if settings.webhook.is_used else []),
        *([Repeated("artifacts", removal.catch_up, pause_s=_REMOVAL_S)] if artifacts.elsewhere else []),
        *(handing_out.as_background() if settings.outside_engines else []),
        Repeated("launches", lambda: launches.prune(store), pause_s=_LAUNCHES_S),
        Repeated("keeper", keeper.sweep, pause_s=settings.supervisor.keeper_interval_s),
        Repeated("prompt-log", prompts.catch_up, pause_s=_PROMPTS_S, at_the_end=True),
    ]


def main() -> None:
    """Read the configuration from stdin, and say on stdout when ready; all else goes to stderr."""
    config = json.load(sys.stdin)
    settings = Settings.from_json(config["settings"])
    set_up(settings.log)

    def say_ready(supervisor_id: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # the starter is gone; its tasks are not
            os.write(1, b"ready\n")
        os.dup2(2, 1)

    store = open_store(settings.store, synchronous=settings.sqlite.synchronous)
    try:
        folder, warm = Path(settings.data_dir), config["warm"]
        supervise(store, settings, folder, int(sys.argv[1]), warm, say_ready, detached=True)
    finally:
        store.close()


if __name__ == "__main__":
    main()
