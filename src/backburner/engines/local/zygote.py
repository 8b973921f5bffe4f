"""The zygote: a process that has the app imported and does nothing but fork runners from it.

So a new runner is there in milliseconds, however long the app takes to import. For apps that cannot be
forked it forks runners that import the app for themselves. It reaps its
runners, ends what they leave behind, and ends them all when its supervisor is gone or has lost its hold.
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
import sysconfig
import threading
import traceback
from pathlib import Path
from typing import Any, NoReturn

from ...execution import only_in_this_process
from ...target import FOR_RUNNER, known_files, load, plain_arguments
from ...tools import Registry
from . import launches, linux
from .confinement import NOT_CONFINED_CODE, Confinement
from .hold import Hold
from .import_path import restore_environment
from .interpreter_state import imported
from .runner import serve
from .wire import LARGEST_MESSAGE, encode

_LONGEST_TEXT = 8_000
_LONGEST_NAMES = 500
_FILES_BYTES = 40_000
_LOOK_EVERY_MS = 1000
#: The threads of OpenTelemetry's SDK, which starts them again after a fork.
_COME_BACK = "Otel"


def main() -> None:
    """Run as `python -m backburner.engines.local.zygote SOCKET_FD TARGET forked|anew LAUNCH [ARGUMENT…]`."""
    fd, target, how, launch, *arguments = sys.argv[1:]
    control = socket.socket(fileno=int(fd))
    control.set_inheritable(False)
    sys.argv[:] = arguments or plain_arguments(target)
    launches.standing_on = launch
    linux.die_with_parent(os.getppid())
    linux.adopt_orphans()
    restore_environment()
    os.register_at_fork(after_in_child=control.close)  # only this process is the zygote
    if how == "anew":
        tools, files, warning = None, known_files(target), ""
    else:
        try:
            tools = _load(target)
        except BaseException as error:
            _send(control, _what_broke(error))
            os._exit(1)  # whatever the app has begun
        imported()
        gc.collect()
        gc.freeze()  # what is imported stays shared between the runners
        files, warning = _app_files(), _warning_of_threads()
    _send(control, {"ready": True, "files": files, "warning": warning})
    linux.outlive_parent()  # the control socket tells of its end, and then there is something to do
    Zygote(control, target, tools, warning).run()


def _load(target: str) -> Registry:
    FOR_RUNNER.set(True)
    with only_in_this_process():
        app = load(target)
    FOR_RUNNER.set(False)
    tools: Registry = app.tools
    return tools


def _what_broke(error: BaseException) -> dict[str, str]:
    """Why the app cannot be imported, as its supervisor is told; to be asked where the error is handled."""
    reason = str(error) if isinstance(error, Exception) else f"{type(error).__name__}: {error}"
    return {"broken": reason[:_LONGEST_TEXT], "details": traceback.format_exc()[-_LONGEST_TEXT:]}


def _warning_of_threads() -> str:
    """What to tell the author of an app whose import has left threads; empty where there are none."""
    threads = [
        thread.name
        for thread in threading.enumerate()
        if thread is not threading.main_thread() and not thread.name.startswith(_COME_BACK)
    ]
    if not threads:
        return ""
    return (
        f"The import of this app has started {', '.join(map(repr, threads))[:_LONGEST_NAMES]}. Threads do not"
        " live on in runners, which are forked from the process that imports the app, so what waits for one"
        " waits for ever. Start them in the lifespan or when they are first used, or set"
        ' isolation="spawn" (docs/processes.md says more).'
    )


class Zygote:
    """The process itself; `child_processes.ZygoteProcess` is its supervisor's end."""

    def __init__(self, control: socket.socket, target: str, tools: Registry | None, warning: str) -> None:
        """Without `tools`, each runner imports the app for itself. The `warning` is for the app's author."""
        self._control = control
        self._target = target
        self._tools = tools
        self._warning = warning
        self._runners: dict[int, str] = {}
        self._hold = Hold(counts_sleep=False)
        self._not_ours = linux.children()  # the app's own
        self._reader, self._writer = socket.socketpair()
        for end in (self._reader, self._writer):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a stop goes through the supervisor
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def run(self) -> NoReturn:
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        poller.register(self._reader, select.POLLIN)
        while True:
            ready = [fd for fd, _ in poller.poll(self._patience_ms())]
            if self._runners and self._hold.is_over:
                self._end_runners()
            if self._reader.fileno() in ready:
                with contextlib.suppress(BlockingIOError):
                    self._reader.recv(4096)
                self._reap()
            if self._control.fileno() in ready:
                message, fds = _receive(self._control)
                if message is None:
                    linux.end_children()  # the supervisor is gone: nobody may go on
                    os._exit(0)
                if "held_until" in message:
                    self._hold = Hold(counts_sleep=message["counts_sleep"])
                    self._hold.until = message["held_until"]
                elif "end" in message:
                    self._end(message["end"])
                else:
                    self._fork(message["fork"], message["confinement"], fds)

    def _patience_ms(self) -> int | None:
        """When to look at the hold again. A poll does not count sleep, so it is a short one."""
        return min(self._hold.left_ms(), _LOOK_EVERY_MS) if self._runners else None

    def _end(self, name: str) -> None:
        for pid in [pid for pid, each in self._runners.items() if each == name]:
            linux.kill_group(pid)
            linux.kill(pid)

    def _end_runners(self) -> None:
        """The hold is over: others may run the tasks soon. The supervisor may be stuck or stopped itself."""
        linux.end_children(spare=self._not_ours)
        while self._runners:
            pid, name = self._runners.popitem()
            _send(self._control, {"exited": name, "pid": pid, "code": -signal.SIGKILL})

    def _fork(self, name: str, confinement: dict[str, Any] | None, fds: list[int]) -> None:
        if self._hold.is_over:  # it has slept since it asked for this
            for fd in fds:
                os.close(fd)
            _send(self._control, {"exited": name, "pid": 0, "code": -signal.SIGKILL})
            return
        pid = os.fork()
        if pid == 0:
            self._become_runner(confinement, fds)
        for fd in fds:
            os.close(fd)
        self._runners[pid] = name
        _send(self._control, {"forked": name, "pid": pid})

    def _become_runner(self, confinement: dict[str, Any] | None, fds: list[int]) -> NoReturn:
        """In the new process: leave everything of the zygote behind, then serve, then end at once."""
        status = 1
        try:
            zygote = os.getppid()
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            os.setsid()
            linux.die_with_parent(zygote)
            linux.adopt_orphans()
            for end in (self._reader, self._writer):
                end.close()
            work, steer, stdout, stderr = fds
            null = os.open(os.devnull, os.O_RDONLY)
            for fd, place in ((null, 0), (stdout, 1), (stderr, 2)):
                os.dup2(fd, place)
                os.close(fd)
            if confinement is not None:
                status = NOT_CONFINED_CODE
                Confinement.from_json(confinement).enter()
                linux.die_with_parent(zygote)  # another user's process has to say it again
                status = 1
            self._serve(socket.socket(fileno=work), socket.socket(fileno=steer))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    def _serve(self, work: socket.socket, steer: socket.socket) -> None:
        if self._tools is not None:
            serve(work, steer, self._tools, warning=self._warning)
            return
        try:
            tools = _load(self._target)
        except BaseException as error:
            work.sendall(encode("broken", _what_broke(error)))
            raise
        serve(work, steer, tools, files=_app_files())

    def _reap(self) -> None:
        """Bury the dead. What a runner leaves behind is gone before its end is told."""
        with contextlib.suppress(ChildProcessError):
            while (dead := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                pid, status = dead
                if name := self._runners.pop(pid, None):
                    # A runner adopts its own orphans, so those that come to us had one that is dead.
                    linux.end_children(spare={*self._runners, *self._not_ours})
                    code = os.waitstatus_to_exitcode(status)
                    _send(self._control, {"exited": name, "pid": pid, "code": code})


def _app_files() -> list[str]:
    """The files of the app itself, so that a change of one of them can be seen."""
    installed = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    libraries = tuple(f"{folder}{os.sep}" for folder in (*installed, Path(__file__).parents[2]))
    files = {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}
    own = sorted(file for file in files if file.endswith(".py") and not file.startswith(libraries))
    fitting, room = [], _FILES_BYTES
    for file in own:
        room -= len(json.dumps(file)) + 2
        if room < 0:
            break
        fitting.append(file)
    return fitting


def _send(control: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        control.send(json.dumps(message).encode())


def _receive(control: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    try:
        data, ancillary, _, _ = control.recvmsg(
            LARGEST_MESSAGE, socket.CMSG_SPACE(16), socket.MSG_CMSG_CLOEXEC
        )
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
