"""Detects that a task changed its runner process, which then gets no other task.

The check runs after each task, so it compares a fingerprint instead of restoring values: a new runner
costs a fork of some 3 ms, and few tasks change their process.
"""

from __future__ import annotations

import asyncio
import builtins
import decimal
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
from collections.abc import Callable, Iterator
from operator import attrgetter
from types import ModuleType
from typing import Any

from . import linux

#: Modules and classes that tools patch, by accident or for a test.
_WATCHED: tuple[ModuleType | type, ...] = (
    *(builtins, sys, os, os.path, time, socket, socket.socket, subprocess, subprocess.Popen),
    *(threading, warnings, random, json),
)
_LIMITS = (
    *(resource.RLIMIT_AS, resource.RLIMIT_CORE, resource.RLIMIT_CPU, resource.RLIMIT_DATA),
    *(resource.RLIMIT_FSIZE, resource.RLIMIT_MEMLOCK, resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC),
    resource.RLIMIT_STACK,
)
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_SETTLING_S = 0.05
_STATUS_BYTES = 1 << 13
_MAIN_THREAD = 0
_working_folder = os.getcwd

_logger_settings = attrgetter("level", "propagate", "disabled", "handlers", "filters")
_handler_settings = attrgetter("level", "formatter", "filters")
_stream_settings = attrgetter("encoding", "errors", "line_buffering", "write_through")


class RunnerState:
    """Fingerprint of this process before its first task. Made, and compared, on the main thread."""

    def __init__(self, *, with_lifespan: bool = False) -> None:
        """`with_lifespan`: an open lifespan may open files at any time, so they are not counted."""
        self._warning_filters = [*warnings.filters]
        self._decimal_context = decimal.getcontext().copy()
        self._tempdir = tempfile.tempdir
        self._loggers = _Loggers()
        self._status = os.open("/proc/self/status", os.O_RDONLY)
        self._threads = os.open("/proc/self/task", os.O_RDONLY)
        self._descriptors = None if with_lifespan else os.open("/proc/self/fd", os.O_RDONLY)
        self._handled = _signals_in(self._read_status(), b"\nSigCgt:\t")
        self._children = linux.children() if linux.has_children() else set()
        self._values = [vars(owner).values() for owner in _WATCHED]
        self._modules = {owner.__name__: owner for owner in _WATCHED if isinstance(owner, ModuleType)}
        self._module_count = len(sys.modules)
        self._parts: list[tuple[Callable[[], Any], Any]] = [(read, read()) for read in self._readers()]
        self._thread_count = self._count_threads()
        self._descriptor_count = self._count_descriptors()

    def unchanged(self) -> bool:
        """Return whether this process may have another task. Harmless changes are reset here."""
        try:
            for read, before in self._parts:  # without builtins, until these are known to be as they were
                if read() != before:
                    return False
            self._reset()
            return (
                self._modules_unchanged()
                and self._loggers.unchanged()
                and self._threads_ended()
                and self._count_descriptors() == self._descriptor_count
                and (not linux.has_children() or linux.children() <= self._children)
            )
        except BaseException:  # also raised by a handler or a hook of the tool
            return False

    def _reset(self) -> None:
        """Reset state that ordinary library code changes all the time, for example when it is imported."""
        if warnings.filters != self._warning_filters:
            warnings.resetwarnings()
            filters: Any = warnings.filters
            filters[:] = self._warning_filters
        decimal.setcontext(self._decimal_context.copy())
        random.seed(os.urandom(16))  # no task can predict the numbers of the next
        tempfile.tempdir = self._tempdir
        asyncio.set_event_loop(None)

    def _readers(self) -> Iterator[Callable[[], Any]]:
        """Functions that read one part of the state each, in the order in which they are compared."""
        yield lambda: [[*values] for values in self._values]
        yield lambda: (sys.gettrace(), sys.getprofile())
        yield lambda: [[*each] for each in (sys.path, sys.meta_path, sys.path_hooks, sys.argv, gc.callbacks)]
        yield _interpreter_settings
        variables = vars(os.environ)["_data"]  # comparing os.environ itself decodes each variable
        yield variables.copy
        yield _process_settings
        yield self._lasting_status
        yield lambda: [signal.getsignal(number) for number in self._handled]

    def _modules_unchanged(self) -> bool:
        """Return whether no watched module was replaced in sys.modules, and none was removed."""
        modules = sys.modules
        return len(modules) >= self._module_count and all(
            modules.get(name) is module for name, module in self._modules.items()
        )

    def _read_status(self) -> bytes:
        return os.pread(self._status, _STATUS_BYTES, 0)

    def _lasting_status(self) -> list[bytes]:
        """Umask, users, groups, signals, rights and CPUs, without the lines that change by themselves."""
        text = self._read_status()
        bounds = (
            (b"\nUmask:", b"\nState:"),
            (b"\nUid:", b"\nFDSize:"),
            (b"\nGroups:", b"\nNStgid:"),
            (b"\nSigPnd:", b"\nvoluntary_ctxt_switches:"),
        )
        return [text[text.find(first) : text.find(after)] for first, after in bounds]

    def _count_threads(self) -> int:
        return os.fstat(self._threads).st_nlink

    def _threads_ended(self) -> bool:
        """Return whether no thread is left; one that was joined may need a moment more."""
        if self._count_threads() <= self._thread_count:
            return True
        deadline = time.monotonic() + _SETTLING_S
        while self._count_threads() > self._thread_count:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.0005)
        return True

    def _count_descriptors(self) -> int:
        if self._descriptors is None:
            return 0
        # Before Linux 6.2 the folder has no size.
        return os.fstat(self._descriptors).st_size or len(os.listdir("/proc/self/fd"))


def _interpreter_settings() -> tuple[Any, ...]:
    return (
        sys.getrecursionlimit(),
        sys.getswitchinterval(),
        sys.get_int_max_str_digits(),
        sys.get_coroutine_origin_tracking_depth(),
        sys.get_asyncgen_hooks(),
        threading.stack_size(),
        socket.getdefaulttimeout(),
        locale.setlocale(locale.LC_ALL),
        gc.isenabled(),
        gc.get_threshold(),
        asyncio.get_event_loop_policy(),
        [(stream.writable(), _stream_settings(stream)) for stream in (sys.stdout, sys.stderr)],
    )


def _process_settings() -> tuple[Any, ...]:
    root = os.lstat("/") if os.geteuid() == 0 else None
    return (
        _working_folder(),
        os.getpriority(os.PRIO_PROCESS, _MAIN_THREAD),
        [resource.getrlimit(limit) for limit in _LIMITS],
        [signal.getitimer(timer)[0] > 0 for timer in _TIMERS],
        [(found.st_dev, found.st_ino) for found in (os.fstat(0), os.fstat(1), os.fstat(2))],
        os.get_blocking(1) and os.get_blocking(2),
        None if root is None else (root.st_dev, root.st_ino),
    )


def _signals_in(status: bytes, line: bytes) -> list[int]:
    bits = int(status.partition(line)[2].split(None, 1)[0], 16)
    return [number + 1 for number in range(bits.bit_length()) if bits >> number & 1]


class _Loggers:
    """Settings of all loggers and their handlers."""

    def __init__(self) -> None:
        self._loggers = _all_loggers()
        self._settings = [*map(_copied_settings, self._loggers)]
        self._handlers = [*{handler for logger in self._loggers for handler in logger.handlers}]
        self._of_handlers = [(each.level, each.formatter, [*each.filters]) for each in self._handlers]
        self._switches = self._read_switches()

    def unchanged(self) -> bool:
        loggers = _all_loggers()
        if loggers != self._loggers and not self._accept_new(loggers):
            return False
        return (
            [*map(_logger_settings, loggers)] == self._settings
            and [*map(_handler_settings, self._handlers)] == self._of_handlers
            and self._read_switches() == self._switches
        )

    def _accept_new(self, loggers: list[logging.Logger]) -> bool:
        """Accept loggers that an import has made, if they log as Python's defaults say."""
        known = dict(zip(self._loggers, self._settings, strict=True))
        for logger in loggers:
            if logger not in known:
                handlers = [one for one in logger.handlers if type(one) is not logging.NullHandler]
                if (logger.level, logger.propagate, logger.disabled, handlers, logger.filters) != _DEFAULT:
                    return False
        self._settings = [known.get(logger) or _copied_settings(logger) for logger in loggers]
        self._loggers = loggers
        return True

    def _read_switches(self) -> tuple[int, object]:
        return logging.root.manager.disable, logging.getLogRecordFactory()


_DEFAULT: tuple[Any, ...] = (logging.NOTSET, True, False, [], [])


def _all_loggers() -> list[logging.Logger]:
    named = [*logging.root.manager.loggerDict.values()]
    return [logging.root, *(each for each in named if isinstance(each, logging.Logger))]


def _copied_settings(logger: logging.Logger) -> tuple[Any, ...]:
    return (logger.level, logger.propagate, logger.disabled, [*logger.handlers], [*logger.filters])
