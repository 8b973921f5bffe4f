"""What Python keeps for a whole process, as it was, and how to put it back."""

from __future__ import annotations

import asyncio
import asyncio.events
import builtins
import decimal
import gc
import json
import locale
import logging
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from types import ModuleType
from typing import Any, TextIO

from .kept_values import KeptValues
from .watched_dicts import WatchedDicts

#: What tools patch, by accident or for a test: these come back as they were, attribute by attribute.
_WATCHED: tuple[ModuleType | type, ...] = (
    builtins,
    sys,
    os,
    os.path,
    time,
    socket,
    socket.socket,
    subprocess,
    subprocess.Popen,
    threading,
    warnings,
    random,
    json,
    tempfile,
    asyncio.events,
)
_NOT_THERE = object()


@cache
def imported() -> Imported:
    """What is imported when this is first called: by a zygote, for all its runners."""
    return Imported()


def parts() -> Iterator[Any]:
    """What to restore, in this order: nothing works while builtins do not."""
    yield KeptValues((sys.gettrace, sys.settrace), (sys.getprofile, sys.setprofile))
    yield imported().as_it_is_now()
    for kept in (sys.path, sys.meta_path, sys.path_hooks, sys.argv, gc.callbacks):
        yield _Contents(kept)
    yield _Warnings()
    yield _values()
    yield _Loggers()
    yield _Streams()
    yield _Decimal()
    yield _Random()
    if any(isinstance(value, asyncio.AbstractEventLoopPolicy) for value in vars(asyncio.events).values()):
        yield _EventLoop()


def _values() -> KeptValues:
    return KeptValues(
        (sys.getrecursionlimit, sys.setrecursionlimit),
        (sys.getswitchinterval, sys.setswitchinterval),
        (sys.get_int_max_str_digits, sys.set_int_max_str_digits),
        (sys.get_coroutine_origin_tracking_depth, sys.set_coroutine_origin_tracking_depth),
        (sys.get_asyncgen_hooks, lambda hooks: sys.set_asyncgen_hooks(*hooks)),
        (threading.stack_size, threading.stack_size),
        (socket.getdefaulttimeout, socket.setdefaulttimeout),
        (partial(locale.setlocale, locale.LC_ALL), partial(locale.setlocale, locale.LC_ALL)),
        (gc.isenabled, lambda enabled: gc.enable() if enabled else gc.disable()),
        (gc.get_threshold, lambda thresholds: gc.set_threshold(*thresholds)),
        (lambda: logging.root.manager.disable, logging.disable),
        (logging.getLogRecordFactory, logging.setLogRecordFactory),
    )


class Imported:
    """The attributes of modules and classes, and which modules there are; those that are added stay.

    Taken in the zygote, it is shared between all runners: to take it anew would copy a good part of
    what they share.
    """

    def __init__(self) -> None:
        self._owners = _WATCHED
        self._kept = [dict(vars(owner)) for owner in _WATCHED]
        self._modules = dict(sys.modules)
        self._dicts = WatchedDicts([*map(_dict_of, _WATCHED), sys.modules])

    def as_it_is_now(self) -> Imported:
        """With what has changed since it was taken."""
        places = self._dicts.changed()
        for place in places:
            if place < len(self._owners):
                self._kept[place] = dict(vars(self._owners[place]))
            else:
                self._modules = dict(sys.modules)
        self._dicts.are_right(places)
        return self

    def restore(self) -> None:
        if places := self._dicts.changed():
            for place in places:
                if place < len(self._owners):
                    _put_back(self._owners[place], self._kept[place])
                else:
                    sys.modules.update(self._modules)
                    self._modules = dict(sys.modules)
            self._dicts.are_right(places)


def _dict_of(owner: ModuleType | type) -> dict[str, Any]:
    """The very dict of its attributes; of a class there is a view, which refers to it and nothing else."""
    attributes: Any = vars(owner)
    found: dict[str, Any] = attributes if isinstance(owner, ModuleType) else gc.get_referents(attributes)[0]
    return found


def _put_back(owner: ModuleType | type, kept: dict[str, Any]) -> None:
    for name, value in [*vars(owner).items()]:
        if name in kept:
            continue
        if type(value) is ModuleType:  # a submodule that was imported meanwhile is here to stay
            kept[name] = value
        else:
            delattr(owner, name)
    for name, value in kept.items():
        if vars(owner).get(name, _NOT_THERE) is not value:
            setattr(owner, name, value)


class _Contents:
    """What is in a list of Python's."""

    def __init__(self, kept: list[Any]) -> None:
        self._list, self._before = kept, [*kept]

    def restore(self) -> None:
        if self._list != self._before:
            self._list[:] = self._before


class _Warnings:
    """The filters of warnings."""

    def __init__(self) -> None:
        self._before = [*warnings.filters]

    def restore(self) -> None:
        if warnings.filters != self._before:
            warnings.resetwarnings()  # which also forgets what was decided by them
            list_of_filters: Any = warnings.filters
            list_of_filters[:] = self._before


class _Loggers:
    """The settings of all loggers, and of the handlers that there were. A new logger gets Python's."""

    def __init__(self) -> None:
        self._loggers = dict(_loggers())
        self._before = {name: _settings(logger) for name, logger in self._loggers.items()}
        handlers = {handler for logger in self._loggers.values() for handler in logger.handlers}
        self._handlers = [(each, each.level, each.formatter, [*each.filters]) for each in handlers]

    def restore(self) -> None:
        for name, logger in _loggers():
            before = self._before.get(name, _NEW_LOGGER)
            if _settings(logger) != before:
                level, logger.propagate, logger.disabled, logger.handlers[:], logger.filters[:] = before
                logger.setLevel(level)
        for handler, level, formatter, filters in self._handlers:
            if (handler.level, handler.formatter, handler.filters) != (level, formatter, filters):
                handler.level, handler.formatter, handler.filters[:] = level, formatter, filters


_NEW_LOGGER: tuple[int, bool, bool, list[Any], list[Any]] = (logging.NOTSET, True, False, [], [])


def _loggers() -> Iterator[tuple[str, logging.Logger]]:
    yield "", logging.root
    for name, logger in [*logging.root.manager.loggerDict.items()]:
        if isinstance(logger, logging.Logger):
            yield name, logger


def _settings(logger: logging.Logger) -> tuple[int, bool, bool, list[Any], list[Any]]:
    return logger.level, logger.propagate, logger.disabled, [*logger.handlers], [*logger.filters]


class _Streams:
    """How the objects behind `print` write; which ones they are is an attribute of `sys`."""

    def __init__(self) -> None:
        self._before = [(stream, _modes(stream)) for stream in (sys.stdout, sys.stderr)]

    def restore(self) -> None:
        for stream, (encoding, errors, by_line, through) in self._before:
            if _modes(stream) != (encoding, errors, by_line, through):
                reconfigure: Callable[..., None] = vars(type(stream))["reconfigure"]
                reconfigure(
                    stream, encoding=encoding, errors=errors, line_buffering=by_line, write_through=through
                )


def _modes(stream: TextIO) -> tuple[str, str | None, bool | int, Any]:
    """Raises ValueError for one that is closed."""
    stream.writable()
    return stream.encoding, stream.errors, stream.line_buffering, getattr(stream, "write_through", False)


class _Decimal:
    """The arithmetic context of the main thread."""

    def __init__(self) -> None:
        self._before = decimal.getcontext().copy()

    def restore(self) -> None:
        decimal.setcontext(self._before.copy())


class _Random:
    """Random numbers: no task can foretell those of the next."""

    def restore(self) -> None:
        random.seed(int.from_bytes(os.urandom(16), "big"))


class _EventLoop:
    """The current event loop, of the policy that the app has set. Python's own policy goes as a whole."""

    def restore(self) -> None:
        asyncio.set_event_loop(None)
