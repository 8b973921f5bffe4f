"""What the kernel and the C library keep for a process, as it was, and how to put it back."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from . import linux
from .kept_values import KeptValues

_SETTLING_S = 0.05
_STATUS_BYTES = 1 << 13
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_LIMITS = (
    resource.RLIMIT_AS,
    resource.RLIMIT_CORE,
    resource.RLIMIT_CPU,
    resource.RLIMIT_DATA,
    resource.RLIMIT_FSIZE,
    resource.RLIMIT_MEMLOCK,
    resource.RLIMIT_NOFILE,
    resource.RLIMIT_NPROC,
    resource.RLIMIT_STACK,
)
_OF_THE_MAIN_THREAD = 0
_libc = ctypes.CDLL(None)


class Spent(Exception):
    """Something cannot be put back, or goes on: the process must end."""


def parts(*, with_life: bool) -> Iterator[Any]:
    """What to restore, in this order: what ticks is stopped first, and what cannot be undone is seen last.

    Who opened a file while a lifespan is open, the task or what the lifespan gave it, cannot be told.
    """
    yield _Timers()
    yield _Environment()
    yield KeptValues(
        (os.getcwd, os.chdir),
        (_priority, partial(os.setpriority, os.PRIO_PROCESS, _OF_THE_MAIN_THREAD)),
        *((partial(resource.getrlimit, limit), partial(resource.setrlimit, limit)) for limit in _LIMITS),
    )
    yield _StandardDescriptors()
    yield _Status()
    if os.geteuid() == 0:
        yield _Root()
    yield _Threads()
    if not with_life:
        yield _Descriptors()
    yield _NoMoreChildren()


def _priority() -> int:
    return os.getpriority(os.PRIO_PROCESS, _OF_THE_MAIN_THREAD)


class _Timers:
    """Alarms and interval timers."""

    def restore(self) -> None:
        for timer in _TIMERS:
            signal.setitimer(timer, 0)


class _Environment:
    """The variables, for Python and for C, and the time zone, which is one of them."""

    def __init__(self) -> None:
        self._variables = dict(os.environb)
        self._array = ctypes.c_void_p.in_dll(_libc, "environ")
        self._before = self._pointers()

    def _pointers(self) -> tuple[int | None, bytes]:
        """Where C has its variables: any change gives a variable another place."""
        place = self._array.value
        size = (len(self._variables) + 1) * ctypes.sizeof(ctypes.c_void_p)
        return place, b"" if place is None else ctypes.string_at(place, size)

    def restore(self) -> None:
        if self._array.value == self._before[0] and self._pointers() == self._before:
            return
        os.environb.clear()
        _libc.clearenv()  # what Python has never heard of
        os.environb.update(self._variables)
        time.tzset()
        self._before = self._pointers()


class _StandardDescriptors:
    """The descriptors 0 to 2: they come back from copies, and wait when they are written to."""

    def __init__(self) -> None:
        self._copies = [os.dup(fd) for fd in range(3)]
        self._before = [_file_of(fd) for fd in range(3)]

    def restore(self) -> None:
        for fd, copy in enumerate(self._copies):
            if _file_of(fd) != self._before[fd]:
                os.dup2(copy, fd)
        for fd in (1, 2):
            if not os.get_blocking(fd):
                os.set_blocking(fd, True)


def _file_of(fd: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(fd)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class _Status:
    """What the kernel tells about a process in one text, and no task has reason to change for another.

    The umask, the CPUs and the signals can be put back. Who the process is, its rights, what it gave
    up, and signals that wait to be taken cannot.
    """

    def __init__(self) -> None:
        self._text = os.open("/proc/self/status", os.O_RDONLY)
        ignored, caught = (self._signals(line) for line in (b"\nSigIgn:\t", b"\nSigCgt:\t"))
        self._ignored, self._caught = ignored, {number: signal.getsignal(number) for number in caught}
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        self._cpus = os.sched_getaffinity(_OF_THE_MAIN_THREAD)
        self._umask = os.umask(0o077)
        os.umask(self._umask)
        self._before = self._lasting()

    def restore(self) -> None:
        if self._lasting() == self._before and all(
            signal.getsignal(number) is handler for number, handler in self._caught.items()
        ):
            return
        if signal.sigpending():
            raise Spent("a signal waits to be taken")
        os.umask(self._umask)
        os.sched_setaffinity(_OF_THE_MAIN_THREAD, self._cpus)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            usual = signal.SIG_IGN if number in self._ignored else signal.SIG_DFL
            handler = self._caught.get(number, usual)
            if handler is not None:  # or C has set it, and Python cannot set it again
                signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        if self._lasting() != self._before:
            raise Spent("its user, its rights or its signals are others")

    def _signals(self, line: bytes) -> set[int]:
        """The signals that are in a line of it."""
        _, _, rest = os.pread(self._text, _STATUS_BYTES, 0).partition(line)
        bits = int(rest.split(None, 1)[0], 16)
        return {number + 1 for number in range(bits.bit_length()) if bits >> number & 1}

    def _lasting(self) -> tuple[bytes, bytes, bytes, bytes]:
        """Without what changes by itself."""
        text = os.pread(self._text, _STATUS_BYTES, 0)
        return (
            _between(text, b"\nUmask:", b"\nState:"),
            _between(text, b"\nUid:", b"\nFDSize:"),
            _between(text, b"\nGroups:", b"\nNStgid:"),
            _between(text, b"\nSigPnd:", b"\nvoluntary_ctxt_switches:"),
        )


def _between(text: bytes, first: bytes, after: bytes) -> bytes:
    return text[text.find(first) : text.find(after)]


class _Root:
    """The root folder, which only root can change."""

    def __init__(self) -> None:
        self._before = os.lstat("/")

    def restore(self) -> None:
        if not os.path.samestat(os.lstat("/"), self._before):
            raise Spent("it has another root folder")


class _Descriptors:
    """What is open: files, sockets, pipes."""

    def __init__(self) -> None:
        self._folder = os.open("/proc/self/fd", os.O_RDONLY)
        self._before = self._count()

    def _count(self) -> int:
        """Before Linux 6.2 they have to be counted one by one."""
        return os.fstat(self._folder).st_size or len(os.listdir("/proc/self/fd"))

    def restore(self) -> None:
        if self._count() != self._before:
            raise Spent("it has left something open, or closed what it should not")


class _Threads:
    """The threads: Python's, listed or not, and those of libraries."""

    def __init__(self) -> None:
        self._folder = os.open("/proc/self/task", os.O_RDONLY)
        self._before = self._count()

    def _count(self) -> int:
        return os.fstat(self._folder).st_nlink

    def restore(self) -> None:
        if self._count() <= self._before:
            return
        deadline = time.monotonic() + _SETTLING_S
        while self._count() > self._before:  # one that was joined may need a moment more
            if time.monotonic() > deadline:
                raise Spent("it has left a thread")
            time.sleep(0.0005)


class _NoMoreChildren:
    """The children, dead or alive."""

    def __init__(self) -> None:
        self._before = linux.children() if linux.has_children() else set()

    def restore(self) -> None:
        if linux.has_children() and not linux.children() <= self._before:
            raise Spent("it has left a child")
