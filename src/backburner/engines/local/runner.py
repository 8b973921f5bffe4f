"""The runner: the process in which a worker executes tools, one after another."""

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
from typing import Any, TextIO

from ... import json_text
from ...errors import InvalidJson, TaskCancelled, UnknownTool
from ...execution import Assignment, Execution
from ...task import TaskError
from ...tools import Registry
from . import linux
from .task_log import RECORD
from .wire import MessageReader, encode

_PROGRESS_EVERY_S = 0.1
_CONSOLE = ("<stdout>", "<stderr>")
_libc = ctypes.CDLL(None)


def serve(work: socket.socket, steer: socket.socket, tools: Registry) -> None:
    """Run what comes over `work` until it ends; `steer` brings cancels and replies meanwhile."""
    execution = Execution()
    channel = SocketChannel(work)
    channel.follow(steer, execution)
    _capture_output(channel)
    threads = threading.active_count()
    work.sendall(encode("hello", {}))
    for kind, body in MessageReader(work).each():
        if kind == "run":
            outcome = _run(Assignment.from_json(body), tools, execution, channel)
            _flush()
            # What goes on in the background would write into the next task's log.
            outcome["spent"] = threading.active_count() > threads or linux.has_children()
            channel.finish(outcome)


def _run(
    assignment: Assignment, tools: Registry, execution: Execution, channel: SocketChannel
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
        except (OSError, ValueError, AttributeError):  # the tool closed it, or put it away
            continue
    _libc.fflush(None)


class SocketChannel:
    """How a tool's context reaches the supervisor."""

    def __init__(self, work: socket.socket) -> None:
        self._work = work
        self._output = os.dup(1)  # the tool may close its own
        self._sending = threading.Lock()
        self._logging = threading.Lock()
        self._numbers = itertools.count(1)
        self._replies: dict[int, Any] = {}
        self._replied = threading.Condition()
        self._cancelled = False
        self._latest: dict[str, Any] | None = None
        self._moved = threading.Event()
        os.register_at_fork(after_in_child=self._unlock)

    def _unlock(self) -> None:
        """A tool may fork while another of its threads logs."""
        self._sending, self._logging = threading.Lock(), threading.Lock()

    def log(self, level: str, message: str) -> None:
        """Write a record in line with what is printed, so that all of it stays in order."""
        record = {"ts": time.time_ns() // 1_000_000, "level": str(level), "message": str(message)}
        data = memoryview(RECORD + json.dumps(record).encode() + b"\n")
        with self._logging:
            while data:
                data = data[os.write(self._output, data) :]

    def request(self, kind: str, body: dict[str, Any]) -> Any:
        number = next(self._numbers)
        message = encode(kind, {**body, "number": number})
        with self._sending:
            self._work.sendall(message)
        with self._replied:
            while number not in self._replies:
                if kind == "ask" and self._cancelled:
                    raise TaskCancelled
                self._replied.wait()
            return self._replies.pop(number)

    def progress(self, body: dict[str, Any]) -> None:
        self._latest = body
        if not self._moved.is_set():
            self._moved.set()

    def finish(self, outcome: dict[str, Any]) -> None:
        """Send the last progress and the outcome; nothing of this task comes after it."""
        self._cancelled = False
        with self._sending:
            self._send_progress()
            self._work.sendall(encode("done", outcome))

    def _send_progress(self) -> None:
        """Only under the lock: progress must not come after the outcome of its task."""
        body, self._latest = self._latest, None
        if body is not None:
            self._work.sendall(encode("progress", _storable(body)))

    def follow(self, steer: socket.socket, execution: Execution) -> None:
        """Hear the supervisor, and send progress now and then, each on a thread of its own."""
        threading.Thread(
            target=self._hear, args=(steer, execution), name="backburner-steer", daemon=True
        ).start()
        threading.Thread(target=self._pace_progress, name="backburner-progress", daemon=True).start()

    def _hear(self, steer: socket.socket, execution: Execution) -> None:
        for kind, body in MessageReader(steer).each():
            if kind == "cancel" and execution.cancel(body["task_id"], body["attempt"]):
                with self._replied:
                    self._cancelled = True
                    self._replied.notify_all()
            elif kind == "reply":
                with self._replied:
                    self._replies[body["number"]] = body.get("value")
                    self._replied.notify_all()
        # The supervisor is gone, or wants this process gone: nothing of it may stay.
        linux.kill_group(os.getpgid(0), signal.SIGKILL)

    def _pace_progress(self) -> None:
        while self._moved.wait():
            self._moved.clear()
            with self._sending:
                self._send_progress()
            time.sleep(_PROGRESS_EVERY_S)


def _storable(progress: dict[str, Any]) -> dict[str, Any]:
    """What a store can keep of it: what JSON cannot hold is no reason to stop a tool."""
    kept = dict(progress)
    for key in ("percent", "step", "step_total"):
        kept[key] = _number(kept[key])
    for key in ("phase", "message"):
        if kept[key] is not None:
            kept[key] = json_text.storable(str(kept[key]))
    try:
        kept["context"] = json_text.decode(json_text.encode(kept["context"]))
    except (InvalidJson, RuntimeError):  # or the tool changes it at this very moment
        kept["context"] = {}
    return kept


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return value if isinstance(value, int) else number if math.isfinite(number) else None


class _LogHandler(logging.Handler):
    """Python's log records as lines of the task's log."""

    def __init__(self, channel: SocketChannel) -> None:
        super().__init__()
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._channel.log(record.levelname.lower(), self.format(record))
        except Exception:
            self.handleError(record)


def _line_by_line(fd: int) -> TextIO:
    return open(fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _capture_output(channel: SocketChannel) -> None:
    """What is printed goes out line by line, and log records as what they are, not to the console."""
    sys.stdout = _line_by_line(1)
    sys.stderr = _line_by_line(2)
    with contextlib.suppress(ValueError):  # a C library that names its streams otherwise
        _libc.setlinebuf(ctypes.c_void_p.in_dll(_libc, "stdout"))
    root = logging.getLogger()
    for handler in list(root.handlers):
        if isinstance(handler, logging.StreamHandler) and getattr(handler.stream, "name", "") in _CONSOLE:
            root.removeHandler(handler)
    root.addHandler(_LogHandler(channel))
    if root.level == logging.WARNING:  # Python's default: a task's log is the place for more
        root.setLevel(logging.INFO)
