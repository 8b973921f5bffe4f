"""The runner process: executes tools one after another and captures their output."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextvars import copy_context
from typing import Any, TextIO

from msgspec import convert

from ....core.logs import OPERATOR_STREAM
from ....core.task import TaskError
from ....errors import UnknownTool
from ....observability import tracing
from ....tools.execution import Assignment, Execution
from ....tools.spec import Registry
from .link import AttemptChannel, SupervisorLink
from .messages import MessageReader
from .runner_state import RunnerState

_libc = ctypes.CDLL(None)


def serve(
    work: socket.socket,
    steer: socket.socket,
    tools: Registry,
    *,
    files: Sequence[str] | None = None,
    warning: str = "",
) -> None:
    """Run the tasks that come over `work` until it ends; `steer` brings cancels and replies meanwhile.

    `files` are those of the app, if this process has imported it itself. The first task's log gets
    the `warning`.
    """
    state: RunnerState | None = None
    supervisor = SupervisorLink(work, steer)
    capture = LogCapture(supervisor, tools.is_private_record)

    def take_fingerprint() -> None:
        nonlocal state
        capture.replace_consoles()  # the lifespan may have added some
        state = RunnerState(with_lifespan=state is not None)

    execution = Execution(tools.lifespan, take_fingerprint)
    supervisor.listen(execution)
    capture.begin()
    tracing.provide(in_runner=True)
    take_fingerprint()
    supervisor.send("hello", {} if files is None else {"files": files})
    for kind, body in MessageReader(_Work(work, execution)).each():
        if kind == "run":
            assignment = convert(body, Assignment)
            channel = supervisor.channel(assignment.task_id, assignment.attempt)
            if warning:
                channel.log("warning", warning)
                warning = ""
            outcome = copy_context().run(_run, assignment, tools, execution, channel)
            _flush()
            outcome["changed"] = not (state and state.unchanged())
            if outcome["changed"] or assignment.last or outcome["kind"] == "cancelled":
                execution.end_life()  # the supervisor kills this process when it gets the outcome
                _flush()
            tracing.flush()
            channel.finish(outcome)
    for fd in (1, 2):
        os.dup2(0, fd)  # the supervisor reads no more output
    execution.end_life()


class _Work:
    """The socket that brings work; an open lifespan's event loop runs while it waits."""

    def __init__(self, work: socket.socket, execution: Execution) -> None:
        self._work = work
        self._execution = execution

    def recv(self, size: int) -> bytes:
        self._execution.go_on_until_readable(self._work)
        return self._work.recv(size)


def _run(
    assignment: Assignment, tools: Registry, execution: Execution, channel: AttemptChannel
) -> dict[str, Any]:
    try:
        spec = tools.get(assignment.tool_name)
    except UnknownTool as error:
        return {"kind": "failed", "error": TaskError("unknown_tool", str(error)).to_dict(), "metrics": {}}
    return execution.run(spec, assignment, channel)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # the tool closed or replaced it
            continue
    _libc.fflush(None)


#: Names of the standard streams: those that Python opened, and those of `_open_lines`.
_CONSOLE = ("<stdout>", "<stderr>", 1, 2)


class LogCapture(logging.Handler):
    """Replaces all log handlers that write to the console, so that each record appears once.

    Records for which `is_private` is true are written for the operator.
    """

    def __init__(self, supervisor: SupervisorLink, is_private: Callable[[logging.LogRecord], bool]) -> None:
        super().__init__()
        self._supervisor = supervisor
        self._is_private = is_private

    def begin(self) -> None:
        """Capture printed text line by line, and log records with their level."""
        sys.stdout = _open_lines(1)
        sys.stderr = _open_lines(2)
        with contextlib.suppress(ValueError):  # a C library that names its streams otherwise
            _libc.setlinebuf(ctypes.c_void_p.in_dll(_libc, "stdout"))
        root = logging.getLogger()
        root.addHandler(self)
        if root.level == logging.WARNING:  # Python's default: a task's log is the place for more
            root.setLevel(logging.INFO)
        logging.lastResort = self
        self.replace_consoles()

    def replace_consoles(self) -> None:
        """Replace the present console handlers."""
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
    """Return whether a handler that the tool has added writes the record to the console."""
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


def _open_lines(fd: int) -> TextIO:
    return open(fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
