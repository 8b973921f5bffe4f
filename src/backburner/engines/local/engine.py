"""The local engine: starts a supervisor when there is none, and replaces one that no longer responds."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from ...core.task import NewTask, Submission, Task
from ...core.times import SystemClock, Unchanged
from ...errors import EngineError, StoreBusy, StoreError
from ...settings import Settings
from ...store.protocol import Store
from .isolation import require
from .lock import (
    LockWait,
    SupervisorLock,
    is_detached,
    is_older,
    refuse_another_store,
    take_if_free,
    take_over,
)
from .processes import linux
from .processes.launches import environment
from .submission import SubmitClient
from .supervisor.batch import work_is_left

log = logging.getLogger("backburner.engine")

_START_S = 30.0
_END_S = 5.0
_LONGEST_PAUSE_S = 30.0
_RETIRES_S, _RESTART_S = 2.0, 20.0


class LocalEngine:
    """Starts the host's supervisor when there is work, and again when it has died.

    The server passes the lock on to the supervisor that it starts, so that no second one can start.
    """

    name = "local"

    def __init__(
        self,
        settings: Settings,
        data_dir: Path,
        target: str,
        store: Store,
        *,
        launch: Callable[[], str] = str,
        temporary: bool = False,
    ) -> None:
        """`launch` returns the id of this process's launch. A `temporary` store ends with this process."""
        self._settings = dataclasses.replace(settings, data_dir=str(data_dir))
        self._data_dir = data_dir
        self._target = target
        self._store = store
        self._launch = launch
        self._temporary = temporary
        self._submit_client = SubmitClient(data_dir, store)
        self._monitor: threading.Thread | None = None
        self._starting = threading.Lock()
        self._spawning = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._needed = threading.Event()
        self._settled = threading.Event()
        self._stopped = threading.Event()
        self._error: EngineError | None = None

    def start(self) -> None:
        """Make sure that a supervisor runs. Raises EngineError, with its last words, when none can start.

        Raises NotConfined when this machine cannot isolate tools as the settings ask.
        """
        if not self._target:
            reason = (
                "no import makes the app, so a runner could not have it; put it into a .py file, at its top "
                "level, or name the function that makes it: Backburner(..., target=...)"
            )
            raise EngineError(engine=self.name, reason=reason)
        require(self._settings)
        with self._starting:
            if self._monitor is None:
                self._monitor = threading.Thread(
                    target=self._monitor_lock, name="backburner-monitor", daemon=True
                )
                self._monitor.start()
        if not self._settled.wait(_START_S):
            raise self._failure(f"the supervisor is not ready after {_START_S:g} s; see {self._log_file}")
        if self._error is not None:
            raise self._error

    def submit(self, new: NewTask, queue_cap: int | None) -> Submission | None:
        return self._submit_client.submit(new, queue_cap)

    async def submit_async(self, new: NewTask, queue_cap: int | None) -> Submission | None:
        # The first submission starts the monitor, which takes a thread.
        return None if self._monitor is None else await self._submit_client.submit_async(new, queue_cap)

    def notify(self, task: Task) -> None:
        if self._monitor is None:
            self.start()
        self._needed.set()

    def stop(self) -> None:
        self._submit_client.close()
        if self._stopped.is_set():
            return
        self._stopped.set()
        self._needed.set()
        if self._monitor is None:
            return
        if not self._temporary:
            self._leave_no_work()
        else:  # the tasks go with the store, so the supervisor must end
            while self._monitor.is_alive():
                if self._child is not None and self._child.poll() is None:
                    for number in (signal.SIGTERM, signal.SIGINT):  # the second ends it at once
                        self._child.send_signal(number)
                self._monitor.join(0.5)
            with contextlib.suppress(EngineError):
                self._reap_child()

    def restart(self) -> int | None:
        """Start a new supervisor in place of the present one, which finishes its running tasks.

        Returns the new one's pid; None when the other does not hand over: a person or a service started it,
        or it does not respond. Raises EngineError, with its last words, when the new one cannot start.
        """
        lock = SupervisorLock(self._data_dir)
        refuse_another_store(lock, self._store)
        fd = take_over(lock, is_detached, within_s=_RESTART_S)
        if fd is None:
            return None
        try:
            lock.sign(fd, None)
            self._spawn(fd)
        finally:
            os.close(fd)
        return None if self._child is None else self._child.pid

    # -- monitoring the lock

    def _monitor_lock(self) -> None:
        """Start a supervisor whenever the lock is free and there is work."""
        wanted, failures = True, 0  # a server that starts expects work soon
        while not self._stopped.is_set():
            try:
                begun = self._start_if(wanted)
                wanted, failures, self._error = False, 0, None
            except (OSError, EngineError) as error:
                self._error = error if isinstance(error, EngineError) else self._failure(str(error))
                wanted, failures = True, failures + 1
                log.error("%s", self._error)
            self._settled.set()
            if failures:
                self._stopped.wait(min(0.25 * 2**failures, _LONGEST_PAUSE_S))
            elif (
                not begun and not self._stopped.is_set()
            ):  # `stop` may have set the event before it was cleared
                self._needed.wait()

    def _start_if(self, wanted: bool) -> bool:
        """Wait until the lock is free; then start a supervisor if one is wanted, or if work is left."""
        lock = SupervisorLock(self._data_dir)
        refuse_another_store(lock, self._store)
        fd = _replace_older(lock)
        if fd is None:
            self._settled.set()
            fd = self._wait_for(lock)
        with self._spawning:
            if self._stopped.is_set():
                os.close(fd)
                return False
            return self._begin(lock, fd, wanted=wanted)

    def _begin(self, lock: SupervisorLock, fd: int, *, wanted: bool = False) -> bool:
        """Start a supervisor with this lock, if one is wanted or work is left; return whether it was so."""
        own_id = None
        try:
            own_id = lock.sign(fd, None)  # at once: a supervisor that exits and sees work relies on it
            self._reap_child()
            self._needed.clear()
            begin = wanted or work_is_left(self._store, self._settings, held=True)
            if begin and own_id is not None:
                self._spawn(fd)
            return begin
        finally:
            with contextlib.suppress(OSError):  # no descriptor may be left for it
                if own_id is not None:
                    lock.leave(fd, own_id)
            os.close(fd)

    def _leave_no_work(self) -> None:
        """Start a supervisor if tasks are left: our last one may have come when it had just exited."""
        with self._spawning:
            pass  # a supervisor that is being started needs this process until it is ready
        try:
            lock = SupervisorLock(self._data_dir)
            fd = take_if_free(lock, _RETIRES_S)
            if fd is not None:
                self._begin(lock, fd)
        except (OSError, EngineError) as error:
            log.error("%s", error)

    def _wait_for(self, lock: SupervisorLock) -> int:
        """Take the lock when its holder has ended, or stalled for so long that its runners have ended.

        An older holder is asked to retire.
        """
        holder = StalledSupervisor(lock, self._store, self._settings)
        waiting = LockWait(lock)
        try:
            while True:
                fd = waiting.taken(within_s=holder.check_every_s)
                if fd is None and not self._stopped.is_set():
                    fd = holder.replace() or _replace_older(lock)
                if fd is not None:
                    return fd
        finally:
            waiting.end()

    def _reap_child(self) -> None:
        """Wait for the end of the supervisor that we started last. Raises EngineError when it failed."""
        child, self._child = self._child, None
        if child is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):  # it is stopped, or hangs
                if child.wait(_END_S) > 0:
                    raise self._failure(self._last_words())

    def _spawn(self, lock_fd: int) -> None:
        """Start a detached supervisor that inherits the lock, and wait until it is ready.

        Raises EngineError, with its last words, when it ends before.
        """
        config = {"settings": self._settings.to_json(), "warm": [(self._target, self._launch())]}
        log_fd = os.open(self._log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        # Not a pipe: the supervisor can read all of it even if this process is killed.
        with os.fdopen(log_fd, "ab"), os.fdopen(os.memfd_create("supervisor-config"), "w+") as stdin:
            json.dump(config, stdin)
            stdin.seek(0)
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", "backburner.supervise", str(lock_fd)],
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=log_fd,
                pass_fds=[lock_fd],
                start_new_session=True,
                env=environment(),
            )
        # The supervisor may outlive this engine, and would then stay a zombie until this process ends.
        threading.Thread(target=self._child.wait, name="backburner-reaper", daemon=True).start()
        assert self._child.stdout is not None, "it is a pipe"
        with self._child.stdout as pipe:
            ready = pipe.read()
        if not ready:
            self._child.wait()
            self._child = None
            raise self._failure(self._last_words())

    @property
    def _log_file(self) -> Path:
        return self._data_dir / "supervisor.log"

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            lines = self._log_file.read_bytes()[-4096:].decode(errors="replace").strip().splitlines()
            return f"the supervisor ended: {lines[-1] if lines else ''} (more in {self._log_file})"
        return "the supervisor ended"

    def _failure(self, reason: str) -> EngineError:
        return EngineError(engine=self.name, reason=reason)


def _replace_older(lock: SupervisorLock) -> int | None:
    """Take the lock if it is free, or if its holder is an older release that a server has started."""
    return take_over(lock, lambda holder: is_detached(holder) and is_older(holder), within_s=_RETIRES_S)


#: A supervisor that starts on a busy machine sends no heartbeat for so long.
_STARTING_S = 5.0


class StalledSupervisor:
    """Watches the heartbeats of the lock's holder, every `check_every_s`, to replace a stalled one."""

    def __init__(self, lock: SupervisorLock, store: Store, settings: Settings) -> None:
        self._lock = lock
        self._store = store
        self._has_workers = bool(settings.local_workers)
        self._lost_after_s = max(settings.supervisor.lost_after_s, _STARTING_S)
        self._seen: Unchanged[str] = Unchanged(SystemClock())
        self.check_every_s = min(self._lost_after_s / 5, 5.0)

    def replace(self) -> int | None:
        """Kill a holder that was silent for so long that its runners have ended.

        Returns the descriptor of a new lock when it could not be killed. None while it is alive, and when
        it was killed, since its lock is free then.
        """
        seen = self._lock.seen()
        _, holder = seen
        supervisor_id, pid, started = (holder.get(key) for key in ("supervisor_id", "pid", "started"))
        try:
            heard = [
                each.last_heartbeat for each in self._store.workers() if each.supervisor_id == supervisor_id
            ]
        except StoreError:
            self._seen.look({})  # no heartbeat arrives in a store that is away
            return None
        silent_ms = self._seen.look({"lock": (seen, heard)})["lock"]
        if not self._has_workers or not silent_ms:
            return None
        if self._is_blocked(pid):
            self._seen.look({})
            return None
        if silent_ms <= self._lost_after_s * 1000:
            return None
        self._seen.look({})
        log.warning("supervisor %s sent no heartbeat for %d s; replacing it", pid, silent_ms / 1000)
        if isinstance(pid, int) and isinstance(started, int) and linux.end_process(pid, started):
            return None
        return self._lock.supersede(seen)

    def _is_blocked(self, supervisor: object) -> bool:
        """Return whether the store is locked by a process other than the supervisor with this pid."""
        try:
            self._store.check_writable()
        except StoreBusy as busy:
            return bool(busy.details.get("pid") != supervisor)
        except StoreError:
            return False
        return False
