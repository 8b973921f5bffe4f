"""A local engine under test: its processes, by what they are, and ways to end them."""

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from typing import Any

import psutil

from backburner import Backburner
from backburner.core.task import Task
from backburner.engines.local import SupervisorLock
from backburner.service.tasks import TaskService
from tests import services
from tests.contracts.engine.base import PATIENCE_S, Work, eventually


class Local(Work):
    """An app, started, and the processes of its supervisor."""

    def __init__(self, app: Backburner) -> None:
        super().__init__(app)
        self.lock = SupervisorLock(app.data_dir)

    def run_as(self, owner: str, tool: str, /, options: dict[str, Any] | None = None, **inputs: Any) -> Task:
        """Submit for an owner and wait for the end."""
        task_id = self.service.submit(tool, inputs, owner=owner, **(options or {})).task_id
        return self.service.wait(task_id, PATIENCE_S, owner=owner).task

    def supervisor_pid(self) -> int | None:
        holder = self.lock.holder()
        pid = (holder or {}).get("pid")
        return pid if isinstance(pid, int) else None

    def supervisor(self) -> psutil.Process:
        """The supervisor that is there now, or comes in a moment."""
        return psutil.Process(eventually(self.supervisor_pid))

    def zygotes(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            return self.supervisor().children()
        return []

    def runners(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            return [runner for zygote in self.zygotes() for runner in zygote.children()]
        return []

    def family(self) -> list[psutil.Process]:
        """The supervisor and everything under it."""
        supervisor = self.supervisor()
        return [supervisor, *supervisor.children(recursive=True)]

    def runner_of(self, task_id: str) -> psutil.Process:
        """The process in which a task runs."""
        attempts = self.store.attempts
        pids = eventually(lambda: [each.pid for each in attempts(task_id) if each.pid and not each.ended_at])
        return psutil.Process(pids[-1])

    def end_supervisor(self) -> None:
        """Have it hand back what it has, and wait until it is gone."""
        with contextlib.suppress(psutil.NoSuchProcess):
            # One that another server of the test started a moment ago has not signed its lock yet.
            eventually(lambda: self.lock.holder() is None or self.supervisor_pid())
            if pid := self.supervisor_pid():
                supervisor = psutil.Process(pid)
                for number in (signal.SIGTERM, signal.SIGINT):
                    supervisor.send_signal(number)
                assert services.ended(supervisor)


class Client(Work):
    """Reads and submits on a store, and starts nobody to work there."""

    def __init__(self, app: Backburner) -> None:
        super().__init__(app)
        remove = app.artifacts.remove
        self.service = TaskService(app.store, app.tools, app.settings, target=app.target, remove_files=remove)

    def close(self) -> None:
        self.service.close()
        self.app.close()


@contextlib.contextmanager
def running(app: Backburner, *, shared: bool = False) -> Iterator[Local]:
    """The app, started; afterwards its supervisor is gone. A shared one outlives single tests."""
    local = Local(app)
    pid = 0
    try:
        app.start()
        if shared:
            pid = eventually(local.supervisor_pid)
            services.running.add(pid)
        yield local
    finally:
        app.engine.stop()
        local.end_supervisor()
        services.running.discard(pid)
        app.close()


def kill(*processes: psutil.Process) -> None:
    """Kill them as the kernel does, all before any can react."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


def settings(
    folder: os.PathLike[str], *, supervisor: Mapping[str, Any] | None = None, **given: Any
) -> dict[str, Any]:
    return {
        "store": f"sqlite:///{folder}/tasks.db",
        "supervisor": {"keeper_interval_s": 0.5, **(supervisor or {})},
        **given,
    }
