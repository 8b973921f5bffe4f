"""The zygote: a process that has the app imported and does nothing but fork runners from it.

So a new runner is there in milliseconds, however long the app takes to import. It reaps its
runners, takes their orphans along, and kills them all when its supervisor is gone.
"""

from __future__ import annotations

import array
import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

from ...target import load
from . import processes
from .runner import serve

_MESSAGE_SIZE = 1 << 16


def main() -> None:
    """Run as `python -m backburner.engines.local.zygote SOCKET_FD TARGET`."""
    control = socket.socket(fileno=int(sys.argv[1]))
    target = sys.argv[2]
    processes.die_with_parent(os.getppid())
    processes.adopt_orphans()
    try:
        app = load(target)
    except BaseException as error:
        _send(control, {"broken": str(error), "details": traceback.format_exc()})
        sys.exit(1)
    gc.collect()
    gc.freeze()  # what is imported stays shared between the runners
    _send(control, {"ready": True, "files": _app_files()})
    Zygote(control, app.tools).run()


class Zygote:
    def __init__(self, control: socket.socket, tools: Any) -> None:
        self._control = control
        self._tools = tools
        self._runners: dict[int, str] = {}
        self._reader, self._writer = socket.socketpair()
        for end in (self._reader, self._writer):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a stop goes through the supervisor
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def run(self) -> None:
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        poller.register(self._reader, select.POLLIN)
        while True:
            ready = [fd for fd, _ in poller.poll()]
            if self._reader.fileno() in ready:
                with contextlib.suppress(BlockingIOError):
                    self._reader.recv(4096)
                self._reap()
            if self._control.fileno() in ready:
                message, fds = _receive(self._control)
                if message is None:
                    self._end()
                else:
                    self._fork(message["fork"], fds)

    def _fork(self, name: str, fds: list[int]) -> None:
        pid = os.fork()
        if pid == 0:
            self._become_runner(name, fds)
        for fd in fds:
            os.close(fd)
        self._runners[pid] = name
        _send(self._control, {"forked": name, "pid": pid})

    def _become_runner(self, name: str, fds: list[int]) -> None:
        """In the new process: leave everything of the zygote behind, then serve, then end at once."""
        status = 1
        try:
            zygote = os.getppid()
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            os.setsid()
            processes.die_with_parent(zygote)
            for end in (self._control, self._reader, self._writer):
                end.close()
            os.environ[processes.RUNNER_VARIABLE] = name
            work, steer, stdout, stderr = fds
            null = os.open(os.devnull, os.O_RDONLY)
            for fd, place in ((null, 0), (stdout, 1), (stderr, 2)):
                os.dup2(fd, place)
                os.close(fd)
            serve(socket.socket(fileno=work), socket.socket(fileno=steer), self._tools)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    def _reap(self) -> None:
        """Bury the dead. A runner's whole group goes before its number can be given to another process."""
        while True:
            try:
                dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if dead is None:
                return
            pid = dead.si_pid
            name = self._runners.pop(pid, None)
            if name is not None:
                processes.kill_group(pid)
                processes.kill_tagged(processes.RUNNER_VARIABLE, name)
            _, status = os.waitpid(pid, 0)
            if name is not None:
                code = os.waitstatus_to_exitcode(status)
                _send(self._control, {"exited": name, "pid": pid, "code": code})

    def _end(self) -> None:
        """The supervisor is gone: nobody may go on."""
        for pid in self._runners:
            processes.kill_group(pid)
        for name in self._runners.values():
            processes.kill_tagged(processes.RUNNER_VARIABLE, name)
        os._exit(0)


def _app_files() -> list[str]:
    """The files of the app itself, so that a change of one of them can be seen."""
    libraries = (sys.prefix, sys.base_prefix, str(Path(__file__).parents[2]))
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    own = {file for file in files if file and file.endswith(".py") and not file.startswith(libraries)}
    return sorted(own)[:200]


def _send(control: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        control.send(json.dumps(message).encode()[: 1 << 17])


def _receive(control: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    try:
        data, ancillary, _, _ = control.recvmsg(_MESSAGE_SIZE, socket.CMSG_SPACE(16))
    except OSError:
        return None, []
    if not data:
        return None, []
    fds = array.array("i")
    for _, _, payload in ancillary:
        fds.frombytes(payload)
    return json.loads(data), list(fds)


if __name__ == "__main__":
    main()
