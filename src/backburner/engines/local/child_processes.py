"""The supervisor's ends of its child processes: zygotes, and the runners that they forked."""

from __future__ import annotations

import array
import contextlib
import fcntl
import itertools
import json
import logging
import os
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...clock import Clock
from ...target import known_files
from ...task import Task, TaskError
from . import linux
from .confinement import Confinement
from .hold import Hold
from .launches import Launch
from .wire import LARGEST_MESSAGE, MessageReader, NotAMessage, encode

log = logging.getLogger("backburner.supervisor")

_PIPE_SIZE = 1 << 18
_READ_SIZE = 1 << 16
_CLOSE_S = 5
_SHARE_FOR_LOOKING = 0.01
_SENDER = struct.Struct("iII")  # of SCM_CREDENTIALS: process, user, group
_SENDER_SPACE = socket.CMSG_SPACE(_SENDER.size)

OnFull = Callable[["RunnerProcess", socket.socket], None]


class RunnerProcess:
    """The supervisor's end of one runner process.

    It serves one `tenant` alone, within its `confinement`. `requested_at` is when its zygote was told
    to fork it; `idle_since`, when its last task was over; it is `spent` when no other task may follow.
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
        """`on_full` is told of an end on which there is more to send than the runner takes in now."""
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
        self.spent = False
        self.work, self._their_work = socket.socketpair()
        self.steer, self._their_steer = socket.socketpair()
        self.stdout, self._their_stdout = os.pipe()
        self.stderr, self._their_stderr = os.pipe()
        for fd in (self.stdout, self.stderr):
            os.set_blocking(fd, False)
            with contextlib.suppress(OSError):
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
        self.messages = MessageReader(_OnlyFromRunner(self.work), largest_message)
        self._unsent = {self.work: b"", self.steer: b""}
        self.closed = self._theirs_closed = False

    def their_fds(self) -> list[int]:
        return [self._their_work.fileno(), self._their_steer.fileno(), self._their_stdout, self._their_stderr]

    def forget_their_fds(self) -> None:
        """The zygote has its copies now; ours must go, or the end of a runner is not seen."""
        if self._theirs_closed:
            return
        self._theirs_closed = True
        self._their_work.close()
        self._their_steer.close()
        os.close(self._their_stdout)
        os.close(self._their_stderr)

    def send(self, kind: str, body: dict[str, Any]) -> bool:
        """Give the runner work; False when it is gone."""
        return self._send(self.work, encode(kind, body))

    def tell(self, kind: str, body: dict[str, Any]) -> bool:
        """Say something to a runner at work; False when it is gone."""
        return self._send(self.steer, encode(kind, body))

    def send_rest(self, end: socket.socket) -> bool:
        """Send what `on_full` was told of; whether some of it is left for later."""
        return not self.closed and self._send(end, b"") and bool(self._unsent[end])

    def _send(self, end: socket.socket, data: bytes) -> bool:
        """A runner that takes nothing in must not stop its supervisor: what does not fit waits."""
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
        """What it has written to its standard streams, and which of them have ended.

        A part of it, so that a runner that never stops writing cannot hold its supervisor up; or
        everything up to now, which is as much as a pipe holds.
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
            linux.kill(self.pid)  # one that hangs early on has no group of its own yet

    def close(self) -> None:
        """Let go of it; an idle runner ends by itself then."""
        if not self.closed:
            self.closed = True
            self.forget_their_fds()
            self.work.close()
            self.steer.close()
            os.close(self.stdout)
            os.close(self.stderr)


class _OnlyFromRunner:
    """Reads a runner's socket without waiting, and takes nothing from anybody but the runner itself.

    A tool's child may have a copy of the socket. The kernel says which process has sent what.
    """

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._speaker: int | None = None

    def recv(self, size: int) -> bytes:
        data, notes, _, _ = self._stream.recvmsg(size, _SENDER_SPACE, socket.MSG_DONTWAIT)
        if data:
            (_, _, sender), *_ = notes
            pid = _SENDER.unpack(sender)[0]
            if self._speaker is None:
                self._speaker = pid  # it says hello before there is a tool that could fork
            if pid != self._speaker:
                raise NotAMessage("another process than the runner has written to its channel")
        return data


@dataclass(frozen=True, slots=True)
class Origin:
    """What a zygote stands for: an app, and the launch that it is imported with.

    It has imported the app itself, or each of its runners does it `anew`.
    """

    target: str
    launch: str = ""
    anew: bool = False

    @classmethod
    def of(cls, task: Task) -> Origin:
        return cls(task.target, task.launch, anew=task.isolation == "spawn")


class ZygoteProcess:
    """The supervisor's end of one zygote process. `broken` is why the app cannot be imported."""

    def __init__(
        self,
        origin: Origin,
        launch: Launch,
        supervisor_id: str,
        clock: Clock,
        hold: Hold,
        largest_message: int,
    ) -> None:
        """`largest_message` is how much its runners may say at once, in bytes."""
        self.origin = origin
        self.target = target = origin.target
        self.started_at = clock.steady_ms()
        self._hold = hold
        self.broken: TaskError | None = None
        self.gone = False
        self.runners: dict[str, RunnerProcess] = {}
        self._clock = clock
        self._largest_message = largest_message
        self.ready = False
        self._waiting: list[RunnerProcess] = []
        # Until it says which files the app consists of, the one that is known is looked at.
        self.watch(known_files(target))
        self._look_again_at = 0.0
        self._numbers = itertools.count(1)
        self._supervisor_id = supervisor_id
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.setblocking(False)
        fd = theirs.fileno()
        module = ("-P", "-m", "backburner.engines.local.zygote", str(fd))
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
        except (OSError, ValueError) as error:  # its control socket has ended then, and will be seen to
            self.broken = app_not_loaded(target, f"{launch.python}, which it was submitted with: {error}")
        theirs.close()

    @property
    def pid(self) -> int:
        """0 for one that did not start."""
        return 0 if self._process is None else self._process.pid

    def fork(self, tenant: str, confinement: Confinement | None, on_full: OnFull) -> RunnerProcess:
        """A new runner for tasks of this tenant; it can be given work when it is `ready`."""
        name = f"{self._supervisor_id}-{self.pid}-{next(self._numbers)}"
        runner = RunnerProcess(name, self, tenant, confinement, self._largest_message, on_full)
        self.runners[runner.name] = runner
        if self.ready:
            self._request(runner)
        else:
            self._waiting.append(runner)
        return runner

    def _request(self, runner: RunnerProcess) -> None:
        if runner.closed:  # nobody waits for it any more
            del self.runners[runner.name]
            return
        bounds = None if runner.confinement is None else runner.confinement.to_json()
        message = json.dumps({"fork": runner.name, "confinement": bounds}).encode()
        fds = array.array("i", runner.their_fds())
        with contextlib.suppress(OSError):  # its death is seen elsewhere
            self.control.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        runner.forget_their_fds()
        runner.requested_at = self._clock.steady_ms()

    def end(self, runner: RunnerProcess) -> None:
        """Have it kill a runner, which cannot be another process by now: it buries them. From any thread."""
        with contextlib.suppress(OSError):
            self.control.send(json.dumps({"end": runner.name}).encode())

    def tell_hold(self) -> None:
        """Let it know until when its runners may run; it sees to that by itself."""
        if self.ready:
            message = {"held_until": self._hold.until, "counts_sleep": self._hold.counts_sleep}
            with contextlib.suppress(OSError):  # then its runners end, as they do when it is gone
                self.control.send(json.dumps(message).encode())

    def read(self, on_exit: Callable[[RunnerProcess, int], None]) -> None:
        """Take in what it says; `gone` is set at its end. `on_exit(runner, code)` tells of each runner's."""
        while True:
            try:
                data = self.control.recv(LARGEST_MESSAGE)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self.gone = True
                return
            message = json.loads(data)  # from our own code: there is no tool in a zygote
            if "ready" in message:
                self.ready = True
                self.watch(message["files"])
                if message["warning"]:
                    log.warning("%s: %s", self.target, message["warning"])
                self.tell_hold()
                for runner in self._waiting:
                    self._request(runner)
                self._waiting.clear()
            elif "broken" in message:
                self.broken = app_not_loaded(self.target, message["broken"], message["details"])
            elif "forked" in message:
                self.runners[message["forked"]].pid = message["pid"]
            elif "exited" in message:
                on_exit(self.runners.pop(message["exited"]), message["code"])

    @property
    def has_runners_alive(self) -> bool:
        return any(runner.pid is not None for runner in self.runners.values())

    def watch(self, files: list[str]) -> None:
        """The app consists of these."""
        self._stamps = {path: _stamp(path) for path in map(Path, files)}

    def files_changed(self) -> bool:
        """Whether the app on disk is another one than this. Spends no more than its share on looking."""
        began = time.perf_counter()
        if began < self._look_again_at:
            return False
        changed = any(_stamp(path) != stamp for path, stamp in self._stamps.items())
        ended = time.perf_counter()
        self._look_again_at = ended + (ended - began) / _SHARE_FOR_LOOKING
        return changed

    def kill(self) -> None:
        """End it at once. Its runners die with it; what they leave behind is its parent's."""
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
