"""Isolation of runners: the tenant of each, and its confinement by the settings."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import subprocess
import sys
from pathlib import Path

from ....core.files import make_private, scratch_folder, tasks_folder, work_folder
from ....core.task import Task
from ....errors import NotConfined
from ....settings import IsolationSettings, Settings
from . import confinement
from .confinement import Confinement

_PROBE = "from backburner.engines.local.isolation.confinement import leave_network; leave_network()"
_PROBE_S = 30


class Isolation:
    """Isolation as the settings ask for it. Raises NotConfined when this machine cannot provide it.

    A runner that is confined to the folder of its task serves that task only; others serve one owner.
    """

    def __init__(self, settings: Settings, store_url: str, data_dir: Path) -> None:
        require(settings)
        self._asked = asked = settings.isolation
        self._tasks_folder = tasks_folder(data_dir)
        self._users = _users(asked.users)
        self._hidden = tuple(os.path.realpath(path) for path in _private_files(store_url, data_dir))
        self._writable = tuple(os.path.realpath(path) for path in asked.writable)
        #: Whether each task has a runner of its own.
        self.for_each_task = bool(self._users) or asked.files == "task"
        if self._users:  # they may pass, but not list these folders
            self._tasks_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for folder in (data_dir, self._tasks_folder):
                folder.chmod(0o711)

    def tenant(self, task: Task) -> str:
        """Return the tenant of a task; a runner gets no tasks of another one."""
        return f"{task.owner} {task.task_id} {task.attempt}" if self.for_each_task else task.owner

    def confine(self, task: Task, worker_number: int) -> Confinement | None:
        """Return the confinement of the runner for this task, if any, and prepare the task's folder."""
        asked = self._asked
        if not (self.for_each_task or asked.no_new_privileges or asked.network == "none"):
            return None
        folder, user = work_folder(self._tasks_folder, task.task_id, task.attempt), None
        if self.for_each_task:
            make_private(folder)
        if self._users:
            user = self._users[worker_number % len(self._users)]
            folder.parent.chmod(0o711)  # it may pass, but not list the artifacts beside its folder
            os.chown(folder, *user, follow_symlinks=False)
        return Confinement(
            folder=str(folder) if self.for_each_task else "",
            scratch=str(scratch_folder(folder)),
            user=user,
            no_new_privileges=asked.no_new_privileges,
            own_network=asked.network == "none",
            own_files=asked.files == "task",
            writable=self._writable,
            hidden=self._hidden,
        )

    def release(self, confinement: Confinement | None) -> None:
        """Take back the folder of a runner that has ended, so that later ones of its user cannot reach it."""
        if confinement is not None and confinement.folder:
            _take_back(Path(confinement.folder))


def require(settings: Settings) -> None:
    """Raise NotConfined, with the setting, when this machine cannot provide the isolation."""
    asked, workers = settings.isolation, sum(settings.local_workers.values())
    lacking = _missing(asked)
    if not lacking and "-" in asked.users and len(users := _users(asked.users)) < workers:
        lacking["isolation.users"] = f"{asked.users} are {len(users)} users for {workers} workers"
    for setting, reason in lacking.items():
        raise NotConfined(engine="local", setting=setting, reason=reason)


def _missing(asked: IsolationSettings) -> dict[str, str]:
    """Return the settings that this machine cannot provide, with the reason of each."""
    found, root = {}, os.geteuid() == 0
    if asked.users and not root:
        found["isolation.users"] = "only root can give runners another user; start the supervisor as root"
    elif asked.users and not all(user for user, _ in _users(asked.users) or [(0, 0)]):
        found["isolation.users"] = f"{asked.users!r} is root, which nothing confines, or no user"
    if asked.network == "none" and root and not asked.users:
        found["isolation.network"] = "root can join any network; set isolation.users as well"
    elif asked.network == "none" and (reason := network_missing()):
        found["isolation.network"] = reason
    if asked.files == "task" and confinement.version() < confinement.OLDEST_VERSION:
        has = f"version {confinement.version()} of it" if confinement.version() else "none"
        found["isolation.files"] = (
            f"it needs Landlock of Linux 6.2 (version {confinement.OLDEST_VERSION}); this kernel has {has}"
        )
    return found


def available() -> list[str]:
    """Return the settings of `isolation` that this machine can provide."""
    offers = {
        "no_new_privileges": True,
        "users": os.geteuid() == 0,
        "network": not network_missing(),
        "files": confinement.version() >= confinement.OLDEST_VERSION,
    }
    return [setting for setting, offered in offers.items() if offered]


def in_force(asked: IsolationSettings) -> list[str]:
    """Return the settings of `isolation` that confine tools."""
    asks = {
        "no_new_privileges": asked.no_new_privileges,
        "users": bool(asked.users),
        "network": asked.network == "none",
        "files": asked.files == "task",
    }
    return [setting for setting, asks_for_it in asks.items() if asks_for_it]


def network_missing() -> str:
    """Return why a process cannot have a network of its own; empty when it can."""
    probe = subprocess.run(
        [sys.executable, "-c", _PROBE], capture_output=True, text=True, timeout=_PROBE_S, check=False
    )
    if probe.returncode == 0:
        return ""
    said = probe.stderr.strip().splitlines()
    return f"a network of its own is not allowed here ({said[-1] if said else 'no reason was given'})"


def _users(named: str) -> list[tuple[int, int]]:
    """Return the user and group ids that are named; empty when there is no such user."""
    if numbers := re.fullmatch(r"(\d+)(?:-(\d+))?", named):
        return [(number, number) for number in range(int(numbers[1]), int(numbers[2] or numbers[1]) + 1)]
    try:
        user = pwd.getpwnam(named)
    except KeyError:
        return []
    return [(user.pw_uid, user.pw_gid)]


def _private_files(store_url: str, data_dir: Path) -> list[str]:
    """Return the files of the store, which are hidden from tools."""
    file = store_url.removeprefix("sqlite:///")
    beside = [f"{file}{end}" for end in ("", "-wal", "-shm", ".d")] if file != store_url else []
    return [*beside, str(data_dir)]


def _take_back(folder: Path) -> None:
    """Remove the folder if it is empty, else make it private."""
    with contextlib.suppress(OSError):
        folder.rmdir()
        return
    with contextlib.suppress(OSError):
        os.chown(folder, os.geteuid(), os.getegid(), follow_symlinks=False)
        folder.chmod(0o700)
