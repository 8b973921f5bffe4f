"""The supervisor's ends of its child processes: a zygote for each app, and the runners that it forked."""

from __future__ import annotations

import array
import contextlib
import fcntl
import itertools
import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...clock import Clock
from ...task import TaskError
from . import linux
from .wire import LARGEST_MESSAGE, MessageReader, encode

_PIPE_SIZE = 1 << 18
_READ_SIZE = 1 << 16
_SEND_TIMEOUT_S = 5
_CLOSE_S = 5
_SHARE_FOR_LOOKING = 0.01


class RunnerProcess:
    """The supervisor's end of one runner process.

    `requested_at` is when its zygote was told to fork it; it is `spent` when no other task may follow.
    """

    def __init__(self, name: str, zygote: ZygoteProcess) -> None:
        self.name = name
        self.zygote = zygote
        self.pid: int | None = None
        self.tasks_done = 0
        self.ready = False
        self.requested_at: int | None = None
        self.spent = False
        self.work, self._their_work = socket.socketpair()
        self.steer, self._their_steer = socket.socketpair()
        self.stdout, self._their_stdout = os.pipe()
        self.stderr, self._their_stderr = os.pipe()
        for end in (self.work, self.steer):
            # A runner that takes nothing in must not stop its supervisor for ever.
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _SEND_TIMEOUT_S, 0))
        for fd in (self.stdout, self.stderr):
            os.set_blocking(fd, False)
            with contextlib.suppress(OSError):
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
        self.messages = MessageReader(_NonBlocking(self.work))
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
        return _send(self.work, kind, body)

    def tell(self, kind: str, body: dict[str, Any]) -> bool:
        """Say something to a runner at work; False when it is gone."""
        return _send(self.steer, kind, body)

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


class _NonBlocking:
    """Reads a socket without waiting, though sends on it wait."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream

    def recv(self, size: int) -> bytes:
        return self._stream.recv(size, socket.MSG_DONTWAIT)


def _send(end: socket.socket, kind: str, body: dict[str, Any]) -> bool:
    try:
        end.sendall(encode(kind, body))
    except OSError:
        return False
    return True


class ZygoteProcess:
    """The supervisor's end of one zygote process. `broken` is why the app cannot be imported."""

    def __init__(self, target: str, supervisor_id: str, clock: Clock) -> None:
        self.target = target
        self.broken: TaskError | None = None
        self.gone = False
        self.runners: dict[str, RunnerProcess] = {}
        self._clock = clock
        self._ready = False
        self._waiting: list[RunnerProcess] = []
        self._stamps: dict[str, int] = {}
        self._look_again_at = 0.0
        self._numbers = itertools.count(1)
        self._supervisor_id = supervisor_id
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.setblocking(False)
        fd = theirs.fileno()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "backburner.engines.local.zygote", str(fd), target],
            pass_fds=[fd],
            stdin=subprocess.DEVNULL,
            env={**os.environ, linux.SUPERVISOR_VARIABLE: supervisor_id},
            start_new_session=True,
        )
        theirs.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def fork(self) -> RunnerProcess:
        """A new runner; it can be given work when it is `ready`."""
        runner = RunnerProcess(f"{self._supervisor_id}-{self.pid}-{next(self._numbers)}", self)
        self.runners[runner.name] = runner
        if self._ready:
            self._request(runner)
        else:
            self._waiting.append(runner)
        return runner

    def _request(self, runner: RunnerProcess) -> None:
        if runner.closed:  # nobody waits for it any more
            del self.runners[runner.name]
            return
        message = json.dumps({"fork": runner.name}).encode()
        fds = array.array("i", runner.their_fds())
        with contextlib.suppress(OSError):  # its death is seen elsewhere
            self.control.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        runner.forget_their_fds()
        runner.requested_at = self._clock.now_ms()

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
            message = json.loads(data)
            if "ready" in message:
                self._ready = True
                self._stamps = {file: _stamp(file) for file in message["files"]}
                for runner in self._waiting:
                    self._request(runner)
                self._waiting.clear()
            elif "broken" in message:
                reason = f"The app {self.target} does not load: {message['broken']}"
                self.broken = TaskError("app_not_loaded", reason, details=message["details"])
            elif "forked" in message:
                self.runners[message["forked"]].pid = message["pid"]
            elif "exited" in message:
                on_exit(self.runners.pop(message["exited"]), message["code"])

    def files_changed(self) -> bool:
        """Whether the app on disk is another one than this. Spends no more than its share on looking."""
        began = time.perf_counter()
        if began < self._look_again_at:
            return False
        changed = any(_stamp(file) != stamp for file, stamp in self._stamps.items())
        ended = time.perf_counter()
        self._look_again_at = ended + (ended - began) / _SHARE_FOR_LOOKING
        return changed

    def kill(self) -> None:
        """End it at once. Its runners die with it; what they leave behind is its parent's."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End it, and with it all its runners."""
        self.control.close()
        try:
            self._process.wait(_CLOSE_S if self._ready else 0)
        except subprocess.TimeoutExpired:
            self.kill()
        for runner in self.runners.values():
            runner.close()


def _stamp(file: str) -> int:
    try:
        return Path(file).stat().st_mtime_ns
    except OSError:
        return 0
