"""The runner process: executes tools in turn, captures their output, and reports to its supervisor.

`SupervisorLink` is its connection, with a channel for each attempt.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import logging
import math
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextvars import copy_context
from typing import Any, TextIO

from msgspec import convert

from ....core import json_text
from ....core.logs import OPERATOR_STREAM
from ....core.task import TaskError
from ....errors import ArtifactStorageError, InvalidJson, InvalidRequest, TaskCancelled, UnknownTool
from ....observability import tracing
from ....tools.execution import Assignment, Execution
from ....tools.spec import Registry
from . import linux
from .messages import LONGEST_LINE, LONGEST_RECORD, MAX_NUMBER, RECORD, MessageReader, encode
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


_PROGRESS_EVERY_S = 0.1
_LONGEST_TEXT = 4_000
_LARGEST_CONTEXT = 64_000


class SupervisorLink:
    """Sends messages of attempts, and receives the supervisor's. Unusable in a process that a tool forks."""

    def __init__(self, work: socket.socket, steer: socket.socket) -> None:
        self._work = work
        self._steer = steer
        self._send_all = work.sendall  # tools may patch the class
        self._output = os.dup(1)  # the tool may close its own
        self._sending = threading.Lock()
        self._logging = threading.Lock()
        self._numbers = itertools.count(1)
        self._replies: dict[int, Any] = {}
        self._replied = threading.Condition()
        self._current: AttemptChannel | None = None
        self._cancelled: dict[str, Any] | None = None  # the attempt, which may not have begun yet
        self._has_progress = threading.Event()
        self._forked = False
        os.register_at_fork(after_in_child=self._close_in_child)

    def _close_in_child(self) -> None:
        """Close the sockets in a child of the tool: it must not send or receive for the task."""
        self._forked = True
        self._work.close()
        self._steer.close()
        # Another thread may have held these at the moment of the fork.
        self._sending, self._logging = threading.Lock(), threading.Lock()

    def channel(self, task_id: str, attempt: int) -> AttemptChannel:
        """Return the channel of the attempt that begins now."""
        self._current = AttemptChannel(self, task_id, attempt)
        return self._current

    def log(self, level: str, message: str, stream: str = "log") -> None:
        """Write a record to the standard output, so that records and printed lines stay in order."""
        message = str(message)
        record = {"ts": time.time_ns() // 1_000_000, "level": str(level), "message": message}
        if stream != "log":
            record["stream"] = stream
        data = memoryview(RECORD + json.dumps(record).encode() + b"\n")
        # A longer one would not be recognized.
        if len(data) > LONGEST_RECORD and stream in ("log", OPERATOR_STREAM):
            for start in range(0, len(message), LONGEST_LINE):
                self.log(level, message[start : start + LONGEST_LINE], stream)
            return
        with self._logging:
            while data:
                data = data[os.write(self._output, data) :]

    def send(self, kind: str, body: dict[str, Any]) -> None:
        with self._sending:
            self._send_all(encode(kind, body))

    def request(self, channel: AttemptChannel, kind: str, body: dict[str, Any]) -> Any:
        """Send a message and wait for the reply. Raises ArtifactStorageError for an artifact."""
        if self._forked:
            reason = (
                "this is another process than the one that was given the task; only that one can send this"
            )
            raise InvalidRequest(reason=reason)
        number = next(self._numbers)
        with self._sending:
            channel.check_not_over()
            self._send_all(encode(kind, {**body, "number": number}))
        with self._replied:
            while number not in self._replies:
                if kind == "ask" and channel.name == self._cancelled:
                    raise TaskCancelled
                self._replied.wait()
            reply = self._replies.pop(number)
        if "refused" in reply:
            raise ArtifactStorageError(**reply["refused"])
        return reply.get("value")

    def finish(self, channel: AttemptChannel, body: dict[str, Any]) -> None:
        """Send the last progress and the outcome. Nothing of this attempt is sent afterwards."""
        with self._sending:
            self._send_progress()
            channel.over = True
            self._send_all(encode("done", body))

    def notify_progress(self) -> None:
        if not self._has_progress.is_set():
            self._has_progress.set()

    def _send_progress(self) -> None:
        """Call this under the lock: progress must not follow the outcome of its attempt."""
        body = self._current.take_progress() if self._current is not None else None
        if body is not None:
            self._send_all(encode("progress", body))

    def listen(self, execution: Execution) -> None:
        """Receive messages of the supervisor, and send progress, each on a thread of its own."""
        threading.Thread(
            target=self._receive, args=(execution,), name="backburner-steer", daemon=True
        ).start()
        threading.Thread(target=self._pace_progress, name="backburner-progress", daemon=True).start()

    def _receive(self, execution: Execution) -> None:
        for kind, body in MessageReader(self._steer).each():
            if kind == "cancel":
                execution.cancel(body["task_id"], body["attempt"])
                with self._replied:
                    self._cancelled = body
                    self._replied.notify_all()
            elif kind == "reply":
                with self._replied:
                    self._replies[body["number"]] = body
                    self._replied.notify_all()
        # The supervisor has ended, or has released this process.
        execution.wait_for_end()
        linux.kill_group(os.getpgid(0), signal.SIGKILL)

    def _pace_progress(self) -> None:
        while self._has_progress.wait():
            self._has_progress.clear()
            with self._sending:
                self._send_progress()
            time.sleep(_PROGRESS_EVERY_S)


class AttemptChannel:
    """Channel of one attempt to the supervisor; every message names the attempt."""

    def __init__(self, link: SupervisorLink, task_id: str, attempt: int) -> None:
        self._link = link
        self.name = {"task_id": task_id, "attempt": attempt}
        self._latest: dict[str, Any] | None = None
        self.over = False

    def log(self, level: str, message: str, stream: str = "log") -> None:
        if not self.over:
            self._link.log(level, message, stream)

    def request(self, kind: str, body: dict[str, Any]) -> Any:
        return self._link.request(self, kind, {**body, **self.name})

    def progress(self, body: dict[str, Any]) -> None:
        self._latest = body
        self._link.notify_progress()

    def finish(self, outcome: dict[str, Any]) -> None:
        self._link.finish(self, {**outcome, **self.name})

    def take_progress(self) -> dict[str, Any] | None:
        """Return the latest unsent progress, as a store accepts it."""
        body, self._latest = self._latest, None
        return None if body is None or self.over else {**_storable(body), **self.name}

    def check_not_over(self) -> None:
        """Raise InvalidRequest when the attempt is over: a thread may outlive its task."""
        if self.over:
            raise InvalidRequest(reason=f"task {self.name['task_id']} is over")


def _storable(progress: dict[str, Any]) -> dict[str, Any]:
    """Return progress that a store accepts; values that JSON cannot hold are dropped."""
    kept = dict(progress)
    for key in ("percent", "step", "step_total"):
        kept[key] = _number(kept[key])
    for key in ("phase", "message"):
        if kept[key] is not None:
            kept[key] = json_text.storable(str(kept[key])[:_LONGEST_TEXT])
    try:
        text = json_text.encode(kept["context"])
        kept["context"] = json_text.decode(text) if len(text) <= _LARGEST_CONTEXT else {}
    except (InvalidJson, RuntimeError):  # or the tool changes it at this very moment
        kept["context"] = {}
    return kept


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_NUMBER:
        return int(value)
    return number if math.isfinite(number) else None
