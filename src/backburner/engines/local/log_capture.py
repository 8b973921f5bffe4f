"""Captures what a runner prints and logs, for the logs of its tasks."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from ...task_log_lines import OPERATOR_STREAM
from .supervisor_link import SupervisorLink

#: Names of the standard streams: those that Python opened, and those of `_line_by_line`.
_CONSOLE = ("<stdout>", "<stderr>", 1, 2)
_libc = ctypes.CDLL(None)


class LogCapture(logging.Handler):
    """Takes the place of all log handlers that write to the console, so that each record appears once.

    Records that `is_private` are written for the operator.
    """

    def __init__(self, supervisor: SupervisorLink, is_private: Callable[[logging.LogRecord], bool]) -> None:
        super().__init__()
        self._supervisor = supervisor
        self._is_private = is_private

    def begin(self) -> None:
        """Capture this process: printed text goes out line by line, and log records with their level."""
        sys.stdout = _line_by_line(1)
        sys.stderr = _line_by_line(2)
        with contextlib.suppress(ValueError):  # a C library that names its streams otherwise
            _libc.setlinebuf(ctypes.c_void_p.in_dll(_libc, "stdout"))
        root = logging.getLogger()
        root.addHandler(self)
        if root.level == logging.WARNING:  # Python's default: a task's log is the place for more
            root.setLevel(logging.INFO)
        logging.lastResort = self
        self.replace_consoles()

    def replace_consoles(self) -> None:
        """Replace the console handlers that there are now."""
        for logger in _loggers():
            consoles = [handler for handler in logger.handlers if _is_console(handler)]
            for handler in consoles:
                logger.removeHandler(handler)
            if consoles and not logger.propagate:
                logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if not _is_printed(record):
                stream = OPERATOR_STREAM if self._is_private(record) else "log"
                self._supervisor.log(record.levelname.lower(), self.format(record), stream)
        except Exception:
            self.handleError(record)


def _loggers() -> Iterator[logging.Logger]:
    yield logging.root
    yield from [
        logger for logger in logging.root.manager.loggerDict.values() if isinstance(logger, logging.Logger)
    ]


def _is_printed(record: logging.LogRecord) -> bool:
    """Whether a handler that the tool itself has added writes the record to the console."""
    logger: logging.Logger | None = logging.getLogger(record.name)
    while logger is not None:
        if any(_is_console(one) and record.levelno >= one.level for one in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


def _is_console(handler: Any) -> bool:
    console = getattr(handler, "console", None)  # of rich.logging.RichHandler, which is no StreamHandler
    stream = getattr(handler, "stream", None) or getattr(console, "file", None)
    return getattr(stream, "name", None) in _CONSOLE


def _line_by_line(fd: int) -> TextIO:
    return open(fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
