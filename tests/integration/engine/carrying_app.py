"""An app whose tools change their process in every way that the next task could feel, and look for it."""

from __future__ import annotations

import asyncio
import builtins
import contextvars
import ctypes
import decimal
import faulthandler
import gc
import json
import locale
import logging
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backburner import Backburner

bb = Backburner("carrying", store="sqlite://", queues={"one_by_one": 1})

_libc = ctypes.CDLL(None, use_errno=True)
_variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
_kept: list[Any] = []
_named = logging.getLogger("named")
_PR_SET_NO_NEW_PRIVS, _PR_GET_NO_NEW_PRIVS = 38, 39


def _do_nothing(*_: object) -> None: ...


class _Policy(asyncio.DefaultEventLoopPolicy):
    """Another one than Python's."""


def _soft_limit() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (1024, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _block_signal() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])


def _replace_output() -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def _time_zone() -> None:
    os.environ["TZ"] = "Asia/Tokyo"
    time.tzset()


def _patch(owner: object, name: str) -> Callable[[], None]:
    return lambda: setattr(owner, name, _do_nothing)


def _name_of(owner: object, name: str) -> Callable[[], str]:
    return lambda: getattr(getattr(owner, name), "__name__", "")


def _loop_is_set() -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            loop = asyncio.get_event_loop()
        except RuntimeError:
            return False
        left = hasattr(loop, "left_by_a_task")
        if not left:
            loop.close()
        return left


def _leave_loop() -> None:
    loop: Any = asyncio.new_event_loop()
    loop.left_by_a_task = True
    loop.close()  # so that it holds nothing open
    asyncio.set_event_loop(loop)


def _new_logger() -> None:
    made = logging.getLogger("made by a task")
    made.setLevel("ERROR")
    made.propagate = False


#: How a task changes it, and how the next one sees it.
RESET: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
    "environment": (lambda: os.environ.update(LEFT="1"), lambda: os.environ.get("LEFT")),
    "emptied environment": (os.environ.clear, lambda: sorted(os.environ)),
    "time zone": (_time_zone, lambda: time.tzname),
    "working folder": (lambda: os.chdir("/proc"), Path.cwd),
    "umask": (lambda: os.umask(0o007), lambda: os.umask(0o022) or os.umask(0o022)),
    "signal handler": (
        lambda: signal.signal(signal.SIGUSR1, _do_nothing),
        lambda: signal.getsignal(signal.SIGUSR1),
    ),
    "ignored signal": (
        lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),
        lambda: signal.getsignal(signal.SIGTERM),
    ),
    "signal handler of C": (lambda: faulthandler.register(signal.SIGUSR1), lambda: _status("SigCgt")),
    "signal mask": (_block_signal, lambda: sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))),
    "alarm": (lambda: signal.alarm(600), lambda: signal.alarm(0)),
    "interval timer": (
        lambda: signal.setitimer(signal.ITIMER_PROF, 600),
        lambda: signal.setitimer(signal.ITIMER_PROF, 0)[0] > 0,
    ),
    "soft limit": (_soft_limit, lambda: resource.getrlimit(resource.RLIMIT_CORE)),
    "CPU affinity": (
        lambda: os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]),
        lambda: sorted(os.sched_getaffinity(0)),
    ),
    "locale": (
        lambda: locale.setlocale(locale.LC_ALL, "C" if _is_utf8() else "C.UTF-8"),
        lambda: locale.setlocale(locale.LC_ALL),
    ),
    "sys.path": (lambda: sys.path.insert(0, "/left"), lambda: sys.path),
    "another sys.path": (lambda: setattr(sys, "path", ["/left"]), lambda: sys.path),
    "sys.meta_path": (sys.meta_path.clear, lambda: len(sys.meta_path)),
    "sys.path_hooks": (sys.path_hooks.clear, lambda: len(sys.path_hooks)),
    "sys.argv": (lambda: sys.argv.append("left"), lambda: sys.argv),
    "sys.modules": (lambda: sys.modules.update(json=os), lambda: sys.modules["json"].__name__),
    "sys.modules without one": (lambda: sys.modules.pop("json"), lambda: sys.modules["json"] is json),
    "sys.excepthook": (_patch(sys, "excepthook"), _name_of(sys, "excepthook")),
    "sys.displayhook": (_patch(sys, "displayhook"), _name_of(sys, "displayhook")),
    "sys.unraisablehook": (_patch(sys, "unraisablehook"), _name_of(sys, "unraisablehook")),
    "threading.excepthook": (_patch(threading, "excepthook"), _name_of(threading, "excepthook")),
    "trace": (lambda: sys.settrace(_do_nothing), sys.gettrace),
    "profile": (lambda: sys.setprofile(_do_nothing), sys.getprofile),
    "trace of threads": (lambda: threading.settrace(_do_nothing), threading.gettrace),
    "recursion limit": (lambda: sys.setrecursionlimit(12_345), sys.getrecursionlimit),
    "switch interval": (lambda: sys.setswitchinterval(0.5), sys.getswitchinterval),
    "longest number": (lambda: sys.set_int_max_str_digits(0), sys.get_int_max_str_digits),
    "warnings": (lambda: warnings.simplefilter("error"), lambda: len(warnings.filters)),
    "log level": (lambda: logging.getLogger().setLevel("ERROR"), lambda: logging.getLogger().level),
    "log handler": (
        lambda: logging.getLogger().addHandler(logging.NullHandler()),
        lambda: len(logging.getLogger().handlers),
    ),
    "log filter": (lambda: _named.addFilter(lambda _: False), lambda: len(_named.filters)),
    "log format": (
        lambda: logging.getLogger().handlers[0].setFormatter(logging.Formatter("left %(message)s")),
        lambda: str(logging.getLogger().handlers[0].formatter),
    ),
    "named logger": (lambda: _named.setLevel("ERROR"), lambda: _named.level),
    "silent logger": (lambda: setattr(_named, "disabled", True), lambda: _named.disabled),
    "detached logger": (lambda: setattr(_named, "propagate", False), lambda: _named.propagate),
    "new logger": (_new_logger, lambda: logging.getLogger("made by a task").getEffectiveLevel()),
    "logging off": (lambda: logging.disable(logging.CRITICAL), lambda: logging.root.manager.disable),
    "sys.stdout": (lambda: setattr(sys, "stdout", None), lambda: sys.stdout.isatty() is False),
    "sys.stdout's buffer": (
        lambda: sys.stdout.reconfigure(line_buffering=False),  # type: ignore[union-attr]
        lambda: sys.stdout.line_buffering,
    ),
    "standard output": (_replace_output, lambda: Path("/proc/self/fd/1").readlink().name.partition(":")[0]),
    "decimal": (lambda: setattr(decimal.getcontext(), "prec", 3), lambda: decimal.getcontext().prec),
    "random numbers": (lambda: random.seed(1), lambda: random.random() == _first_random()),
    "socket time-out": (lambda: socket.setdefaulttimeout(7), socket.getdefaulttimeout),
    "garbage collection": (gc.disable, gc.isenabled),
    "garbage thresholds": (lambda: gc.set_threshold(1, 2, 3), gc.get_threshold),
    "event loop": (_leave_loop, _loop_is_set),
    "event loop policy": (
        lambda: asyncio.set_event_loop_policy(_Policy()),
        lambda: type(asyncio.get_event_loop_policy()).__name__,
    ),
    "context variable": (lambda: _variable.set("left"), _variable.get),
    "temporary folder": (lambda: setattr(tempfile, "tempdir", "/left"), tempfile.gettempdir),
    "builtins.open": (_patch(builtins, "open"), _name_of(builtins, "open")),
    "builtins.sorted": (_patch(builtins, "sorted"), _name_of(builtins, "sorted")),
    "new builtin": (lambda: setattr(builtins, "left", 1), lambda: hasattr(builtins, "left")),
    "os.getcwd": (_patch(os, "getcwd"), _name_of(os, "getcwd")),
    "os.environ": (lambda: setattr(os, "environ", {}), lambda: type(os.environ).__name__),
    "time.time": (_patch(time, "time"), _name_of(time, "time")),
    "time.sleep taken away": (lambda: delattr(time, "sleep"), lambda: hasattr(time, "sleep")),
    "socket.create_connection": (
        _patch(socket, "create_connection"),
        _name_of(socket, "create_connection"),
    ),
    "socket.socket.connect": (
        _patch(socket.socket, "connect"),
        lambda: "connect" in vars(socket.socket),
    ),
    "subprocess.run": (_patch(subprocess, "run"), _name_of(subprocess, "run")),
    "subprocess.Popen.wait": (_patch(subprocess.Popen, "wait"), _name_of(subprocess.Popen, "wait")),
    "json.dumps": (_patch(json, "dumps"), _name_of(json, "dumps")),
}


def _status(line: str) -> str:
    return Path("/proc/self/status").read_text().partition(f"{line}:")[2].split()[0]


def _is_utf8() -> bool:
    return locale.setlocale(locale.LC_ALL) == "C.UTF-8"


def _first_random() -> float:
    return random.Random(1).random()


def _hard_limit() -> None:
    if os.geteuid() == 0:
        os.setgroups([65534])
        os.setuid(65534)  # who is not root cannot raise it again
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _leave_thread(start: Callable[[Callable[[], None]], object]) -> Callable[[], None]:
    def write() -> None:
        while True:
            os.write(1, b"left behind\n")
            time.sleep(0.0005)

    return lambda: _kept.append(start(write))


def _start_plainly(function: Callable[[], None]) -> None:
    import _thread

    _thread.start_new_thread(function, ())


def _start_timer(function: Callable[[], None]) -> object:
    timer = threading.Timer(0.01, function)
    timer.start()
    return timer


def _pending_signal() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
    signal.pthread_kill(threading.get_ident(), signal.SIGUSR2)


def _close_output() -> None:
    sys.stdout.close()


#: How a task changes what only the end of the process takes back.
SPENT: dict[str, Callable[[], object]] = {
    "hard limit": _hard_limit,
    "no new privileges": lambda: _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
    "thread": _leave_thread(lambda write: threading.Thread(target=write, daemon=True).start()),
    "thread that Python does not list": _leave_thread(_start_plainly),
    "timer thread": _leave_thread(_start_timer),
    "child": lambda: _kept.append(subprocess.Popen(["sleep", "600"])),
    "open file": lambda: _kept.append(os.open("/proc/self/stat", os.O_RDONLY)),
    "open socket": lambda: _kept.append(socket.socket()),
    "pending signal": _pending_signal,
    "closed sys.stdout": _close_output,
}
#: As SPENT, for root alone.
SPENT_BY_ROOT: dict[str, Callable[[], object]] = {
    "user": lambda: os.setuid(65534),
    "groups": lambda: os.setgroups([65534]),
    "root folder": lambda: os.chroot("/usr"),
}


def _import_library() -> None:
    logging.getLogger(f"library.{len(logging.root.manager.loggerDict)}").addHandler(logging.NullHandler())
    warnings.filterwarnings("ignore", message="of a library")
    sys.modules.setdefault("made_by_import", type(sys)("made_by_import"))


def _join_thread() -> None:
    thread = threading.Thread(target=time.time)
    thread.start()
    thread.join()


#: What a task may do without losing its process.
USES: dict[str, Callable[[], object]] = {
    "nothing": lambda: None,
    "import": _import_library,
    "thread": _join_thread,
    "child": lambda: subprocess.run(["true"], check=True),
    "event loop": lambda: asyncio.run(asyncio.sleep(0)),
    "decimal": lambda: decimal.Decimal(1) / 3,
    "random": random.random,
    "temporary file": lambda: tempfile.TemporaryFile().close(),
    "print": lambda: print("printed", flush=True),
}


@bb.tool(retries=0)
def change(what: str) -> int:
    """Change it, and leave it so."""
    if what in RESET:
        RESET[what][0]()
    else:
        {**SPENT, **SPENT_BY_ROOT}[what]()
    return os.getpid()


@bb.tool(retries=0)
def look(what: str) -> tuple[int, str]:
    """The process, and what can be seen of it."""
    seen = RESET[what][1]() if what in RESET else None
    return os.getpid(), str(seen)


@bb.tool(retries=0)
def use(what: str) -> tuple[int, str]:
    """Do what libraries do all the time."""
    return os.getpid(), str(USES[what]())


@bb.tool(retries=0)
def listen() -> int:
    """Be there for a moment, so that what others have left could be heard."""
    print("here")
    time.sleep(0.05)
    return os.getpid()


@bb.tool(retries=0)
def remember(word: str) -> tuple[int, list[str]]:
    """What an app keeps in its own modules, and the process."""
    _words.append(word)
    return os.getpid(), _words


_words: list[str] = []
