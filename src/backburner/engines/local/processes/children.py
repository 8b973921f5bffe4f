"""Supervisor-side handles of zygote and runner processes."""

from __future__ import annotations

import array
import contextlib
import fcntl
import itertools
import logging
import os
import select
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....core.task import Task, TaskError
from ....core.times import Clock
from ....settings import Settings
from ....tools.context import MAX_CHECKPOINT_BYTES
from ....tools.targets import known_files
from ..isolation.confinement import Confinement
from . import linux
from .launches import Launch, Launches
from .messages import (
    LARGEST_PACKET,
    Broken,
    Exited,
    Fork,
    Forked,
    InvalidMessage,
    Kill,
    LeaseDeadline,
    MessageReader,
    Ready,
    SetDeadline,
    ToZygote,
    decode_from_zygote,
    encode,
    encode_packet,
)

log = logging.getLogger("backburner.supervisor")

_PIPE_SIZE = 1 << 18
_READ_SIZE = 1 << 16
_CLOSE_S = 5
_SHARE_FOR_FILE_CHECKS = 0.01
_SENDER = struct.Struct("iII")  # of SCM_CREDENTIALS: process, user, group
_SENDER_SPACE = socket.CMSG_SPACE(_SENDER.size)

OnFull = Callable[["RunnerProcess", socket.socket], None]


class RunnerProcess:
    """The supervisor's end of one runner process.

    It serves one `tenant` alone, within its `confinement`. `requested_at` is when its zygote was asked
    to fork it; `idle_since`, when its last task ended. It is `changed` when it may have no other task.
    """

    def __init__(
        self,
        name: str,
        zygote: ZygoteProcess,
        tenant: str,
        confinement: Confinement | None,
        largest_message: int,
        on_full: OnFull,
    ) -> None:
        """`on_full` is called with a socket that has no room for all that is to be sent."""
        self.name = name
        self.zygote = zygote
        self.tenant = tenant
        self.confinement = confinement
        self._on_full = on_full
        self.pid: int | None = None
        self.tasks_done = 0
        self.idle_since = 0
        self.greeted = self.ready = False
        self.requested_at: int | None = None
        self.changed = False
        self.work, self._their_work = socket.socketpair()
        self.steer, self._their_steer = socket.socketpair()
        self.stdout, self._their_stdout = os.pipe()
        self.stderr, self._their_stderr = os.pipe()
        for fd in (self.stdout, self.stderr):
            os.set_blocking(fd, False)
            with contextlib.suppress(OSError):
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
        self.messages = MessageReader(_AuthenticStream(self.work), largest_message)
        self._unsent = {self.work: b"", self.steer: b""}
        self.closed = self._theirs_closed = False

    def their_fds(self) -> list[int]:
        return [self._their_work.fileno(), self._their_steer.fileno(), self._their_stdout, self._their_stderr]

    def close_their_fds(self) -> None:
        """Close our copies of the runner's ends: else its exit would go unnoticed."""
        if self._theirs_closed:
            return
        self._theirs_closed = True
        self._their_work.close()
        self._their_steer.close()
        os.close(self._their_stdout)
        os.close(self._their_stderr)

    def send(self, kind: str, body: Any) -> bool:
        """Send work; return False when the runner has ended."""
        return self._send(self.work, encode(kind, body))

    def send_aside(self, kind: str, body: Any) -> bool:
        """Send a cancel or a reply, past the work; return False when the runner has ended."""
        return self._send(self.steer, encode(kind, body))

    def send_rest(self, end: socket.socket) -> bool:
        """Send what did not fit before; return whether some is left."""
        return not self.closed and self._send(end, b"") and bool(self._unsent[end])

    def _send(self, end: socket.socket, data: bytes) -> bool:
        """Send without blocking: a runner that reads nothing must not stop its supervisor."""
        waited = bool(self._unsent[end])
        unsent = self._unsent[end] + data
        try:
            sent = end.send(unsent, socket.MSG_DONTWAIT)
        except BlockingIOError:
            sent = 0
        except OSError:
            return False
        self._unsent[end] = unsent[sent:]
        if self._unsent[end] and not waited:
            self._on_full(self, end)
        return True

    def read_output(self, *, everything: bool) -> tuple[list[tuple[str, bytes]], list[int]]:
        """Return what it has written to its standard streams, and which of them have ended.

        A part of it, so that endless output cannot block the supervisor; or all that the pipes hold.
        """
        found, ended = [], []
        for stream, fd in (("stdout", self.stdout), ("stderr", self.stderr)):
            with contextlib.suppress(BlockingIOError):
                if data := os.read(fd, _PIPE_SIZE if everything else _READ_SIZE):
                    found.append((stream, data))
                else:
                    ended.append(fd)
        return found, ended

    def signal(self, number: int) -> None:
        if self.pid is not None:
            linux.kill_group(self.pid, number)

    def kill(self) -> None:
        if self.pid is not None:
            linux.kill_group(self.pid)
            linux.kill(self.pid)  # one that hangs at its start has no group of its own yet

    def close(self) -> None:
        """Close the connection; an idle runner ends by itself then."""
        if not self.closed:
            self.closed = True
            self.close_their_fds()
            self.work.close()
            self.steer.close()
            os.close(self.stdout)
            os.close(self.stderr)


class _AuthenticStream:
    """A runner's socket, read without blocking, that accepts data of the runner's process only.

    A tool's child may have a copy of the socket; the kernel names the sender.
    """

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._sender: int | None = None

    def recv(self, size: int) -> bytes:
        data, notes, _, _ = self._stream.recvmsg(size, _SENDER_SPACE, socket.MSG_DONTWAIT)
        if data:
            (_, _, sender), *_ = notes
            pid = _SENDER.unpack(sender)[0]
            if self._sender is None:
                self._sender = pid  # it says hello before there is a tool that could fork
            if pid != self._sender:
                raise InvalidMessage("another process than the runner has written to its socket")
        return data


@dataclass(frozen=True, slots=True)
class Origin:
    """An app, and the launch that it is imported with: once by a zygote, or `anew` by each of its runners."""

    target: str
    launch: str = ""
    anew: bool = False

    @classmethod
    def of(cls, task: Task) -> Origin:
        return cls(task.target, task.launch, anew=task.isolation == "spawn")


class ZygoteProcess:
    """The supervisor's end of one zygote process. `broken` is the error of an import that failed."""

    def __init__(
        self,
        origin: Origin,
        launch: Launch,
        supervisor_id: str,
        clock: Clock,
        deadline: LeaseDeadline,
        largest_message: int,
    ) -> None:
        """`largest_message` is the limit for messages of its runners, in bytes."""
        self.origin = origin
        self.target = target = origin.target
        self.started_at = clock.steady_ms()
        self._deadline = deadline
        self.broken: TaskError | None = None
        self.gone = False
        self.runners: dict[str, RunnerProcess] = {}
        self._clock = clock
        self._largest_message = largest_message
        self.ready = False
        self._waiting: list[RunnerProcess] = []
        # Until it reports the files of the app, the one that is known is checked.
        self.watch(known_files(target))
        self._check_files_at = 0.0
        self._numbers = itertools.count(1)
        self._supervisor_id = supervisor_id
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.setblocking(False)
        fd = theirs.fileno()
        module = ("-P", "-m", "backburner.engines.local.processes.zygote", str(fd))
        how = ("anew" if origin.anew else "forked", launch.launch_id)
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = subprocess.Popen(
                [launch.python, *module, target, *how, *launch.arguments],
                pass_fds=[fd],
                stdin=subprocess.DEVNULL,
                env={**launch.environment(), linux.SUPERVISOR_VARIABLE: supervisor_id},
                cwd=launch.working_folder,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:  # its control socket ends then, which is handled
            self.broken = app_not_loaded(target, f"{launch.python}, which it was submitted with: {error}")
        theirs.close()

    @property
    def pid(self) -> int:
        """0 for one that did not start."""
        return 0 if self._process is None else self._process.pid

    def fork(self, tenant: str, confinement: Confinement | None, on_full: OnFull) -> RunnerProcess:
        """Fork a runner for tasks of this tenant; it takes work when it is `ready`."""
        name = f"{self._supervisor_id}-{self.pid}-{next(self._numbers)}"
        runner = RunnerProcess(name, self, tenant, confinement, self._largest_message, on_full)
        self.runners[runner.name] = runner
        if self.ready:
            self._request(runner)
        else:
            self._waiting.append(runner)
        return runner

    def _request(self, runner: RunnerProcess) -> None:
        if runner.closed:  # its task is over already
            del self.runners[runner.name]
            return
        message = encode_packet(Fork(runner.name, runner.confinement))
        fds = array.array("i", runner.their_fds())
        with contextlib.suppress(OSError):  # its end is handled elsewhere
            self.control.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        runner.close_their_fds()
        runner.requested_at = self._clock.steady_ms()

    def end(self, runner: RunnerProcess) -> None:
        """Have it kill a runner, whose pid it has not reused, as its parent. From any thread."""
        self._send(Kill(runner.name))

    def send_deadline(self) -> None:
        """Send the lease deadline; the zygote enforces it by itself."""
        if self.ready:
            self._send(SetDeadline(self._deadline.until, self._deadline.counts_sleep))

    def _send(self, message: ToZygote) -> None:
        with contextlib.suppress(OSError):  # its end is handled elsewhere
            self.control.send(encode_packet(message))

    def read(self, on_exit: Callable[[RunnerProcess, int], None]) -> None:
        """Handle its messages; set `gone` at its end. `on_exit(runner, code)` is called for each runner's."""
        while True:
            try:
                data = self.control.recv(LARGEST_PACKET)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self.gone = True
                return
            match decode_from_zygote(data):
                case Ready(files=files, warning=warning):
                    self.ready = True
                    self.watch(files)
                    if warning:
                        log.warning("%s: %s", self.target, warning)
                    self.send_deadline()
                    for runner in self._waiting:
                        self._request(runner)
                    self._waiting.clear()
                case Broken(broken=reason, details=details):
                    self.broken = app_not_loaded(self.target, reason, details)
                case Forked(name=name, pid=pid):
                    self.runners[name].pid = pid
                case Exited(name=name, code=code):
                    on_exit(self.runners.pop(name), code)

    @property
    def has_runners_alive(self) -> bool:
        return any(runner.pid is not None for runner in self.runners.values())

    def watch(self, files: list[str]) -> None:
        """Note the files that the app consists of."""
        self._stamps = {path: _stamp(path) for path in map(Path, files)}

    def files_changed(self) -> bool:
        """Return whether the app's files have changed. Checks spend no more than their share of time."""
        began = time.perf_counter()
        if began < self._check_files_at:
            return False
        changed = any(_stamp(path) != stamp for path, stamp in self._stamps.items())
        ended = time.perf_counter()
        self._check_files_at = ended + (ended - began) / _SHARE_FOR_FILE_CHECKS
        return changed

    def kill(self) -> None:
        """Kill it, and with it its runners; their orphans become its parent's children."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """End it, and with it all its runners."""
        self.control.close()
        try:
            if self._process is not None:
                self._process.wait(_CLOSE_S if self.ready else 0)
        except subprocess.TimeoutExpired:
            self.kill()
        for runner in self.runners.values():
            runner.close()


def app_not_loaded(target: str, reason: str, details: str = "") -> TaskError:
    return TaskError("app_not_loaded", f"The app {target} does not load: {reason}", details=details)


def _stamp(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


#: How many apps stay imported; the least recently used goes first.
_MOST = 8

#: Room in a message besides its result or checkpoint.
_SMALL_PARTS = 8_000_000


class Zygotes:
    """The zygotes of a supervisor: one per origin, and `retired` ones, which end with their last runner."""

    def __init__(
        self, settings: Settings, supervisor_id: str, clock: Clock, deadline: LeaseDeadline, data_dir: Path
    ) -> None:
        self._launches = Launches(data_dir, own_only=settings.supervisor.environment == "own")
        self._supervisor_id = supervisor_id
        self._clock = clock
        self._deadline = deadline
        # A text in a message is JSON within JSON, where a character may take six bytes.
        self._largest_message = _SMALL_PARTS + 6 * MAX_CHECKPOINT_BYTES
        self._forking: dict[Origin, ZygoteProcess] = {}
        self.retired: list[ZygoteProcess] = []

    def __iter__(self) -> Iterator[ZygoteProcess]:
        return iter([*self._forking.values(), *self.retired])

    def of(self, origin: Origin) -> ZygoteProcess | None:
        """Return the zygote of this origin, if there is one."""
        found = self._forking.pop(origin, None)
        if found is not None:
            self._forking[origin] = found  # the most recently used is the last in the dict
        return found

    def start(self, origin: Origin) -> ZygoteProcess:
        """Start a zygote with the environment of the origin's launch, or with the supervisor's."""
        launch = self._launches.find(origin.launch) or Launch()
        started = ZygoteProcess(
            origin, launch, self._supervisor_id, self._clock, self._deadline, self._largest_message
        )
        self._forking[origin] = started
        return started

    def too_many(self) -> list[ZygoteProcess]:
        """Return the zygotes that should retire to make room."""
        return [*self._forking.values()][:-_MOST]

    def retire(self, zygote: ZygoteProcess) -> None:
        if self._forking.get(zygote.origin) is zygote:
            del self._forking[zygote.origin]
        if zygote not in self.retired:
            self.retired.append(zygote)

    def await_ends(self, on_exit: Callable[[RunnerProcess, int], None], within_s: float) -> None:
        """Wait until the released runners have ended; see `ZygoteProcess.read`."""
        deadline = self._clock.steady_ms() + int(within_s * 1000)
        while left := [zygote for zygote in self if not zygote.gone and zygote.has_runners_alive]:
            poller = select.poll()
            for zygote in left:
                poller.register(zygote.control, select.POLLIN)
            if not poller.poll(max(0, deadline - self._clock.steady_ms())):
                return
            for zygote in left:
                zygote.read(on_exit)
