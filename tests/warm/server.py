"""Warm server: imports what most test programs import, then forks a process for each program that is started.

    python tests/warm/server.py FOLDER

`FOLDER/python` and `FOLDER/backburner` (copies of `launch.py`) start programs here. A forked process has the
imports but no other state: environment, folder, arguments, streams, signal handlers and `__main__` are those
of a new process.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import importlib
import io
import marshal
import os
import runpy
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

IMPORTED = (
    "backburner",
    "fastmcp",
    "mcp.client.stdio",
    "mcp.client.streamable_http",
    "mcp.server.mcpserver",
    "rich.console",
    "uvicorn.protocols.http.h11_impl",
)
#: Packages that need extras or make apps. What of the engines a server needs, others import.
NOT_IMPORTED = ("backburner.engines.", "backburner.packs", "backburner.testing")


def main(folder: Path) -> Callable[[], None]:
    """Serve until the parent ends. In each forked process, return what it is to run."""
    warm_up()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
        listener.listen(64)
        Path(folder, "ready").touch()
        return serve(listener)


def warm_up() -> None:
    for name in IMPORTED:
        importlib.import_module(name)
    root = Path(sys.modules["backburner"].__path__[0])
    for file in sorted(root.rglob("*.py")):
        name = ".".join(file.relative_to(root.parent).with_suffix("").parts).removesuffix(".__init__")
        if not name.startswith(NOT_IMPORTED) and not name.endswith(".__main__"):
            importlib.import_module(name)
    assert threading.active_count() == 1, "an import started a thread, which a fork would lose"
    gc.freeze()


def serve(listener: socket.socket) -> Callable[[], None]:
    """Accept, fork, forward signals and report ends."""
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    selector.register(sys.stdin, selectors.EVENT_READ)  # its end is the parent's end
    while True:
        for key, _ in selector.select():
            if key.fileobj is sys.stdin:
                os._exit(0)
            elif key.fileobj is listener:
                connection, _ = listener.accept()
                (folder, arguments, environment), streams = receive(connection)
                if not (pid := os.fork()):
                    selector.close()
                    connection.close()
                    listener.close()
                    prepare(folder, arguments, environment, streams)
                    return program(arguments)
                for stream in streams:
                    os.close(stream)
                ending = os.pidfd_open(pid)
                selector.register(connection, selectors.EVENT_READ, (pid, None))
                selector.register(ending, selectors.EVENT_READ, (pid, connection))
            else:
                pid, client = key.data
                if client is None:
                    forward(pid, key.fileobj, selector)
                else:
                    report(pid, client)
                    selector.unregister(key.fileobj)
                    os.close(key.fd)


def receive(connection: socket.socket) -> tuple[Any, list[int]]:
    size, ancillary, _, _ = connection.recvmsg(4, socket.CMSG_LEN(12))
    streams = array.array("i", ancillary[0][2])
    message = bytearray()
    while len(message) < int.from_bytes(size, "big"):
        message += connection.recv(65536)
    return marshal.loads(message), list(streams)


def forward(pid: int, connection: Any, selector: selectors.BaseSelector) -> None:
    """Send the process the signals that its launcher got; kill it when the launcher is gone."""
    with contextlib.suppress(ProcessLookupError, ConnectionError):
        numbers = connection.recv(64)
        for number in numbers or [signal.SIGKILL]:
            os.kill(pid, number)
        if numbers:
            return
    selector.unregister(connection)
    connection.close()


def report(pid: int, connection: socket.socket) -> None:
    _, status = os.waitpid(pid, 0)
    killed_by, code = (os.WTERMSIG(status), 0) if os.WIFSIGNALED(status) else (0, os.WEXITSTATUS(status))
    with contextlib.suppress(OSError):
        connection.sendall(bytes([killed_by, code]))


# -- in the forked process


def prepare(folder: str, arguments: list[str], environment: dict[str, str], streams: list[int]) -> None:
    """Give this process the state of a new one."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.chdir(folder)
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdin = sys.__stdin__ = open_stream(0, "r")  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = open_stream(1, "w")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = open_stream(2, "w", "backslashreplace")  # type: ignore[misc]
    sys.orig_argv = [sys.executable, *arguments]
    given = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [*filter(None, given), *_OWN_PATH]


def open_stream(number: int, mode: str, errors: str = "strict") -> io.TextIOWrapper:
    binary = open(number, f"{mode}b", closefd=False)  # noqa: SIM115
    interactive = binary.isatty() or number == 2
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    return io.TextIOWrapper(binary, "utf-8", errors, line_buffering=interactive, write_through=unbuffered)


def program(arguments: list[str]) -> Callable[[], None]:
    """Find the program as `python ARGUMENTS` does, for `-m MODULE`, `-c CODE` and a script."""
    match arguments:
        case ["-m", module, *rest]:
            sys.argv = ["-m", *rest]
            sys.path.insert(0, str(Path.cwd()))
            return lambda: runpy._run_module_as_main(module)  # type: ignore[attr-defined]
        case ["-c", code, *rest]:
            sys.argv = ["-c", *rest]
            sys.path.insert(0, "")
            return lambda: exec(compile(code, "<string>", "exec", dont_inherit=True), new_main().__dict__)
        case [script, *_] if not script.startswith("-"):
            sys.argv = arguments
            sys.path.insert(0, str(Path(script).resolve().parent))
            return lambda: run_script(script)
    os.execv(sys.executable, [sys.executable, *arguments])


def run_script(script: str) -> None:
    main = new_main()
    main.__file__ = script
    main.__loader__ = SourceFileLoader("__main__", script)
    main.__dict__["__cached__"] = None
    exec(compile(Path(script).read_bytes(), script, "exec", dont_inherit=True), main.__dict__)


def new_main() -> ModuleType:
    main = sys.modules["__main__"] = ModuleType("__main__")
    vars(main).update(__builtins__=__builtins__, __annotations__={})
    return main


#: Without the folder of this script.
_OWN_PATH = sys.path[1:]


def end_after(run: Callable[[], None]) -> NoReturn:
    """Run a program and end as the interpreter does, without freeing every module, which takes longest."""
    code = 0
    try:
        run()
    except SystemExit as exit:
        code = exit.code if isinstance(exit.code, int) else int(exit.code is not None)
        if exit.code is not None and not isinstance(exit.code, int):
            print(exit.code, file=sys.stderr)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        if isinstance(error, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code & 0xFF)


if __name__ == "__main__":
    end_after(main(Path(sys.argv[1])))
