"""The server's side of the local engine: it makes sure that a supervisor is there."""

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

from ...config import Settings
from ...errors import EngineError
from ...store import Store
from ...submission import Submission
from ...task import NewTask, Task
from .folder_owner import refuse_another_store
from .handing_in import HandingIn
from .import_path import environment
from .isolation import require
from .silent_holder import SilentHolder
from .succession import Succession, is_of_older_version, started_by_itself, unless_another_supervises
from .supervisor_lock import LockWait, SupervisorLock
from .work_source import work_is_left

log = logging.getLogger("backburner.engine")

_START_S = 30.0
_END_S = 5.0
_LONGEST_PAUSE_S = 30.0
_RETIRES_S, _RESTART_S = 2.0, 20.0


class LocalEngine:
    """Starts the host's supervisor when there is work, and again when it has died.

    The server passes the lock on to the supervisor that it starts, so that there is never a
    moment in which a second one could begin.
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
        """`launch` gives what this process stands on, as its tasks name it."""
        self._settings = dataclasses.replace(settings, data_dir=str(data_dir))
        self._data_dir = data_dir
        self._target = target
        self._store = store
        self._launch = launch
        self._temporary = temporary
        self._hand_in = HandingIn(data_dir, store)
        self._guard: threading.Thread | None = None
        self._starting = threading.Lock()
        self._beginning = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._superseded: list[subprocess.Popen[bytes]] = []
        self._needed = threading.Event()
        self._settled = threading.Event()
        self._stopped = threading.Event()
        self._error: EngineError | None = None

    def start(self) -> None:
        """Make sure that a supervisor is there. Raises EngineError, with what it said, when none can be.

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
            if self._guard is None:
                self._guard = threading.Thread(target=self._stand_guard, name="backburner-guard", daemon=True)
                self._guard.start()
        if not self._settled.wait(_START_S):
            raise self._failure(f"the supervisor does not get ready; see {self._log_file}")
        if self._error is not None:
            raise self._error

    def keep(self, new: NewTask, queue_cap: int | None) -> Submission | None:
        return self._hand_in.now(new, queue_cap)

    async def keep_soon(self, new: NewTask, queue_cap: int | None) -> Submission | None:
        # The first one has the guard started as well, and that takes a thread.
        return None if self._guard is None else await self._hand_in.soon(new, queue_cap)

    def submit(self, task: Task) -> None:
        if self._guard is None:
            self.start()
        self._needed.set()

    def stop(self) -> None:
        self._hand_in.close()
        if self._stopped.is_set():
            return
        self._stopped.set()
        self._needed.set()
        if self._guard is None:
            return
        if not self._temporary:
            self._leave_no_work()
        else:  # its tasks are gone with the store, so its supervisor must go too
            while self._guard.is_alive():
                if self._child is not None and self._child.poll() is None:
                    for number in (signal.SIGTERM, signal.SIGINT):  # a second one means: at once
                        self._child.send_signal(number)
                self._guard.join(0.5)
            with contextlib.suppress(EngineError):
                self._part_from_child()

    def restart(self) -> int | None:
        """Start a new supervisor in the place of the one that is there, which finishes what it has under way.

        The new one's pid. None when the other does not give its place up: a person or a service started it,
        or it does not answer. Raises EngineError, with what the new one said, when it cannot be.
        """
        lock = SupervisorLock(self._data_dir)
        refuse_another_store(lock, self._store)
        fd = Succession(lock, started_by_itself).take(within_s=_RESTART_S)
        if fd is None:
            return None
        try:
            lock.sign(fd, None)
            self._spawn(fd)
        finally:
            os.close(fd)
        return None if self._child is None else self._child.pid

    # -- standing guard

    def _stand_guard(self) -> None:
        """Whenever nobody holds the supervisor's lock and there is work, start a supervisor."""
        wanted, failures = True, 0  # a server that starts will have work soon
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
            elif not begun and not self._stopped.is_set():  # `stop` may have rung before the bell was reset
                self._needed.wait()

    def _start_if(self, wanted: bool) -> bool:
        """Wait until nobody supervises; then start a supervisor if one is wanted, or if work is left."""
        lock = SupervisorLock(self._data_dir)
        refuse_another_store(lock, self._store)
        older = Succession(lock, lambda found: started_by_itself(found) and is_of_older_version(found))
        fd = older.take(within_s=_RETIRES_S)
        if fd is None:
            self._settled.set()
            fd = self._wait_for(lock, older)
        with self._beginning:
            if self._stopped.is_set():
                os.close(fd)
                return False
            return self._begin(lock, fd, wanted=wanted)

    def _begin(self, lock: SupervisorLock, fd: int, *, wanted: bool = False) -> bool:
        """Start a supervisor that gets this lock, if one is wanted or work is left; whether it was so."""
        own_id = None
        try:
            own_id = lock.sign(fd, None)  # at once: who leaves and sees work need not come back
            self._part_from_child()
            self._needed.clear()
            begin = wanted or work_is_left(self._store, self._settings, held=True)
            if begin and own_id is not None:
                self._spawn(fd)
            return begin
        finally:
            with contextlib.suppress(OSError):  # there may be no descriptor left for it
                if own_id is not None:
                    lock.leave(fd, own_id)
            os.close(fd)

    def _leave_no_work(self) -> None:
        """Our last task may have come when the supervisor had just left, and nobody else may be there."""
        with self._beginning:
            pass  # a supervisor that is being started needed us until it was ready
        try:
            lock = SupervisorLock(self._data_dir)
            fd = unless_another_supervises(lock, _RETIRES_S)
            if fd is not None:
                self._begin(lock, fd)
        except (OSError, EngineError) as error:
            log.error("%s", error)

    def _wait_for(self, lock: SupervisorLock, older: Succession) -> int:
        """The lock, when its holder is gone, or has been silent for so long that its runners are.

        If it is an older one, it is asked to retire.
        """
        holder = SilentHolder(lock, self._store, self._settings)
        waiting = LockWait(lock)
        try:
            while True:
                fd = waiting.taken(within_s=holder.look_every_s)
                self._superseded = [child for child in self._superseded if child.poll() is None]
                if fd is None and not self._stopped.is_set():
                    fd = holder.take_its_place() or older.take(within_s=_RETIRES_S)
                if fd is not None:
                    return fd
        finally:
            waiting.end()

    def _part_from_child(self) -> None:
        """The supervisor that we started last is over, or superseded. Raises EngineError when it failed."""
        child, self._child = self._child, None
        if child is not None:
            try:
                failed = child.wait(_END_S) > 0
            except subprocess.TimeoutExpired:
                self._superseded.append(child)  # it is stopped, or hangs
            else:
                if failed:
                    raise self._failure(self._last_words())

    def _spawn(self, lock_fd: int) -> None:
        """Start a supervisor that holds the lock already and belongs to no terminal, session or parent.

        Returns when it is ready. Raises EngineError, with its last words, when it ends before.
        """
        config = {"settings": self._settings.to_json(), "warm": [(self._target, self._launch())]}
        log_fd = os.open(self._log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        # Not a pipe: the supervisor has all of it even if this process is killed right after the start.
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
