"""The nursery: the zygotes of a supervisor, one for each app, and the runners that they forked."""

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
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import processes
from .wire import MessageReader, encode

_PIPE_SIZE = 1 << 18
_SEND_TIMEOUT_S = 10


class Runner:
    """The supervisor's end of one runner process."""

    def __init__(self, name: str, zygote: Zygote) -> None:
        self.name = name
        self.zygote = zygote
        self.pid: int | None = None
        self.tasks_done = 0
        self.ready = False
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
        self.closed = False

    def their_fds(self) -> list[int]:
        return [self._their_work.fileno(), self._their_steer.fileno(), self._their_stdout, self._their_stderr]

    def forget_their_fds(self) -> None:
        """The zygote has its copies now; ours must go, or the end of a runner is not seen."""
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

    def read_output(self) -> tuple[list[tuple[str, bytes]], list[int]]:
        """What it has written to its standard streams by now, and which of them have ended."""
        found, ended = [], []
        for stream, fd in (("stdout", self.stdout), ("stderr", self.stderr)):
            with contextlib.suppress(BlockingIOError):
                while data := os.read(fd, _PIPE_SIZE):
                    found.append((stream, data))
                ended.append(fd)
        return found, ended

    def signal(self, number: int) -> None:
        if self.pid is not None:
            processes.kill_group(self.pid, number)

    def close(self) -> None:
        """Let go of it; an idle runner ends by itself then."""
        if not self.closed:
            self.closed = True
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


class Zygote:
    """The supervisor's end of one zygote process."""

    def __init__(self, target: str, supervisor_id: str) -> None:
        self.target = target
        self.broken: str | None = None
        self.runners: dict[str, Runner] = {}
        self._ready = False
        self._waiting: list[Runner] = []
        self._stamps: dict[str, int] = {}
        self._numbers = itertools.count(1)
        self._supervisor_id = supervisor_id
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.setblocking(False)
        fd = theirs.fileno()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "backburner.engines.local.zygote", str(fd), target],
            pass_fds=[fd],
            stdin=subprocess.DEVNULL,
            env={**os.environ, processes.SUPERVISOR_VARIABLE: supervisor_id},
            start_new_session=True,
        )
        theirs.close()

    def fork(self) -> Runner:
        """A new runner; it can be given work when it is `ready`."""
        runner = Runner(f"{self._supervisor_id}-{self._process.pid}-{next(self._numbers)}", self)
        self.runners[runner.name] = runner
        if self._ready:
            self._request(runner)
        else:
            self._waiting.append(runner)
        return runner

    def _request(self, runner: Runner) -> None:
        message = json.dumps({"fork": runner.name}).encode()
        fds = array.array("i", runner.their_fds())
        with contextlib.suppress(OSError):  # its death is seen elsewhere
            self.control.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        runner.forget_their_fds()

    def read(self, on_exit: Callable[[Runner, int], None]) -> None:
        """Take in what it says. `on_exit(runner, code)` is called for each runner that ended."""
        while True:
            try:
                data = self.control.recv(1 << 18)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._gone(on_exit)
                return
            message = json.loads(data)
            if "ready" in message:
                self._ready = True
                self._stamps = {file: _stamp(file) for file in message["files"]}
                for runner in self._waiting:
                    self._request(runner)
                self._waiting.clear()
            elif "broken" in message:
                self.broken = message["broken"]
            elif "forked" in message:
                self.runners[message["forked"]].pid = message["pid"]
            elif "exited" in message:
                on_exit(self.runners.pop(message["exited"]), message["code"])

    def _gone(self, on_exit: Callable[[Runner, int], None]) -> None:
        """It is dead, and by that its runners are."""
        self.broken = self.broken or "its process went away"
        self._process.wait()
        for runner in self._waiting:
            runner.forget_their_fds()
        self._waiting.clear()
        while self.runners:
            on_exit(self.runners.popitem()[1], -9)

    def files_changed(self) -> bool:
        return any(_stamp(file) != stamp for file, stamp in self._stamps.items())

    def close(self) -> None:
        """End it, and with it all its runners."""
        self.control.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for runner in self.runners.values():
            runner.close()


def _stamp(file: str) -> int:
    try:
        return Path(file).stat().st_mtime_ns
    except OSError:
        return 0
