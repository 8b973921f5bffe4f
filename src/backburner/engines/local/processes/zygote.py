"""The zygote: a process that has imported the app and forks runners, in milliseconds.

For apps that cannot be forked, it forks runners that import the app themselves. It reaps runners, kills their
orphans, and kills all of them when its supervisor has ended or the lease deadline has passed.
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
from typing import NoReturn

from ....core import json_text
from ....tools.execution import only_in_this_process
from ....tools.spec import Registry
from ....tools.targets import FOR_RUNNER, known_files, load, plain_arguments
from ..isolation.confinement import NOT_CONFINED_CODE, Confinement
from . import launches, linux
from .launches import restore_environment
from .messages import (
    LARGEST_PACKET,
    Broken,
    Exited,
    Fork,
    Forked,
    FromZygote,
    Kill,
    LeaseDeadline,
    Ready,
    SetDeadline,
    ToZygote,
    decode_to_zygote,
    encode,
    encode_packet,
)
from .runner import serve

_LONGEST_TEXT = 8_000
_LONGEST_NAMES = 500
_FILES_BYTES = 40_000
_CHECK_EVERY_MS = 1000
#: Threads of OpenTelemetry's SDK, which starts them again after a fork.
_RESTARTED = "Otel"


def main() -> None:
    """Run the program: `zygote SOCKET_FD TARGET forked|anew LAUNCH [ARGUMENT…]`."""
    fd, target, how, launch, *arguments = sys.argv[1:]
    control = socket.socket(fileno=int(fd))
    control.set_inheritable(False)
    sys.argv[:] = arguments or plain_arguments(target)
    launches.inherited = launch
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
            _send(control, _broken(error))
            os._exit(1)  # whatever the app has begun
        gc.collect()
        gc.freeze()  # the imported modules stay shared between the runners
        files, warning = _app_files(), _warning_of_threads()
    _send(control, Ready(files, warning))
    linux.outlive_parent()  # at the end of the control socket, runners have to be killed
    Zygote(control, target, tools, warning).run()


def _load(target: str) -> Registry:
    FOR_RUNNER.set(True)
    with only_in_this_process():
        app = load(target)
    FOR_RUNNER.set(False)
    tools: Registry = app.tools
    return tools


def _broken(error: BaseException) -> Broken:
    """Return the message for an app that cannot be imported; to be called while the error is handled."""
    reason = str(error) if isinstance(error, Exception) else f"{type(error).__name__}: {error}"
    return Broken(
        json_text.storable(reason[:_LONGEST_TEXT]),
        json_text.storable(traceback.format_exc()[-_LONGEST_TEXT:]),
    )


def _warning_of_threads() -> str:
    """Return a warning for the author of an app whose import has left threads; empty without threads."""
    threads = [
        json_text.storable(thread.name)
        for thread in threading.enumerate()
        if thread is not threading.main_thread() and not thread.name.startswith(_RESTARTED)
    ]
    if not threads:
        return ""
    return (
        f"The import of this app has started {', '.join(map(repr, threads))[:_LONGEST_NAMES]}. Threads do not"
        " live on in runners, which are forked from the process that imports the app: code that waits for one"
        " waits for ever. Start them in the lifespan or when they are first used, or set"
        ' isolation="spawn" (see docs/explanation/isolation.md).'
    )


class Zygote:
    """The zygote's own side; `children.ZygoteProcess` is the supervisor's."""

    def __init__(self, control: socket.socket, target: str, tools: Registry | None, warning: str) -> None:
        """Without `tools`, each runner imports the app itself. The `warning` is for the app's author."""
        self._control = control
        self._target = target
        self._tools = tools
        self._warning = warning
        self._runners: dict[int, str] = {}
        self._deadline = LeaseDeadline(counts_sleep=False)
        self._app_children = linux.children()
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
            ready = [fd for fd, _ in poller.poll(self._timeout_ms())]
            if self._runners and self._deadline.has_passed:
                self._kill_runners()
            if self._reader.fileno() in ready:
                with contextlib.suppress(BlockingIOError):
                    self._reader.recv(4096)
                self._reap()
            if self._control.fileno() in ready:
                message, fds = _receive(self._control)
                match message:
                    case None:
                        linux.end_children()  # the supervisor has ended
                        os._exit(0)
                    case SetDeadline(until=until, counts_sleep=counts_sleep):
                        self._deadline = LeaseDeadline(counts_sleep=counts_sleep, until=until)
                    case Kill(name=name):
                        self._kill(name)
                    case Fork():
                        self._fork(message, fds)

    def _timeout_ms(self) -> int | None:
        """Return when to check the deadline. A poll does not count sleep, so it is a short one."""
        return min(self._deadline.left_ms(), _CHECK_EVERY_MS) if self._runners else None

    def _kill(self, name: str) -> None:
        for pid in [pid for pid, each in self._runners.items() if each == name]:
            linux.kill_group(pid)
            linux.kill(pid)

    def _kill_runners(self) -> None:
        """Kill all runners: other supervisors may run their tasks soon, and our own may be stopped."""
        linux.end_children(spare=self._app_children)
        while self._runners:
            _, name = self._runners.popitem()
            _send(self._control, Exited(name, -signal.SIGKILL))

    def _fork(self, request: Fork, fds: list[int]) -> None:
        if self._deadline.has_passed:  # the host has slept since the request
            for fd in fds:
                os.close(fd)
            _send(self._control, Exited(request.name, -signal.SIGKILL))
            return
        pid = os.fork()
        if pid == 0:
            self._become_runner(request.confinement, fds)
        for fd in fds:
            os.close(fd)
        self._runners[pid] = request.name
        _send(self._control, Forked(request.name, pid))

    def _become_runner(self, confinement: Confinement | None, fds: list[int]) -> NoReturn:
        """In the new process: leave the zygote's state behind, serve, and exit."""
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
                confinement.enter()
                linux.die_with_parent(zygote)  # the change of user has reset it
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
            work.sendall(encode("broken", _broken(error)))
            raise
        serve(work, steer, tools, files=_app_files())

    def _reap(self) -> None:
        """Reap dead runners, and kill their orphans before their end is reported."""
        with contextlib.suppress(ChildProcessError):
            while (dead := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                pid, status = dead
                if name := self._runners.pop(pid, None):
                    # A living runner adopts its own orphans: those that come to us are of dead ones.
                    linux.end_children(spare={*self._runners, *self._app_children})
                    code = os.waitstatus_to_exitcode(status)
                    _send(self._control, Exited(name, code))


def _app_files() -> list[str]:
    """Return the files of the app itself, whose changes the supervisor watches."""
    installed = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    libraries = tuple(f"{folder}{os.sep}" for folder in (*installed, Path(__file__).parents[2]))
    files = {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}
    own = sorted(
        file
        for file in files
        if file.endswith(".py") and not file.startswith(libraries) and json_text.storable(file) == file
    )
    fitting, room = [], _FILES_BYTES
    for file in own:
        room -= len(json.dumps(file)) + 2
        if room < 0:
            break
        fitting.append(file)
    return fitting


def _send(control: socket.socket, message: FromZygote) -> None:
    with contextlib.suppress(OSError):
        control.send(encode_packet(message))


def _receive(control: socket.socket) -> tuple[ToZygote | None, list[int]]:
    try:
        data, ancillary, _, _ = control.recvmsg(
            LARGEST_PACKET, socket.CMSG_SPACE(16), socket.MSG_CMSG_CLOEXEC
        )
    except OSError:
        return None, []
    if not data:
        return None, []
    fds = array.array("i")
    for _, _, payload in ancillary:
        fds.frombytes(payload)
    return decode_to_zygote(data), list(fds)


if __name__ == "__main__":
    main()
