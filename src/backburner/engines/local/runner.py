"""The runner: the process in which a worker executes tools, one after another."""

from __future__ import annotations

import itertools
import logging
import os
import signal
import socket
import sys
import threading
import time
from typing import Any

from ... import json_text
from ...errors import InvalidJson, TaskCancelled, UnknownTool
from ...execution import Assignment, Execution
from ...task import TaskError
from ...tools import Registry
from . import processes
from .wire import MessageReader, encode

_PROGRESS_EVERY_S = 0.1
_CONSOLE = ("<stdout>", "<stderr>")


def serve(work: socket.socket, steer: socket.socket, tools: Registry) -> None:
    """Run what comes over `work` until it ends; `steer` brings cancels and replies meanwhile."""
    execution = Execution()
    channel = SocketChannel(work)
    channel.follow(steer, execution)
    _capture_logging(channel)
    work.sendall(encode("hello", {}))
    for kind, body in MessageReader(work).each():
        if kind == "run":
            outcome = _run(Assignment.from_json(body), tools, execution, channel)
            _flush()
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
        except (OSError, ValueError):  # the tool closed it
            continue


class SocketChannel:
    """How a tool's context reaches the supervisor."""

    def __init__(self, work: socket.socket) -> None:
        self._work = work
        self._sending = threading.Lock()
        self._numbers = itertools.count(1)
        self._replies: dict[int, Any] = {}
        self._replied = threading.Condition()
        self._cancelled = False
        self._latest: dict[str, Any] | None = None
        self._moved = threading.Event()

    def post(self, kind: str, body: dict[str, Any]) -> None:
        message = encode(kind, body)
        with self._sending:
            self._work.sendall(message)

    def request(self, kind: str, body: dict[str, Any]) -> Any:
        number = next(self._numbers)
        self.post(kind, {**body, "number": number})
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
        self._send_progress()
        self._cancelled = False
        self.post("done", outcome)

    def _send_progress(self) -> None:
        body, self._latest = self._latest, None
        if body is not None:
            try:
                json_text.encode(body)
            except InvalidJson:
                body["context"] = {}  # what JSON cannot hold is no reason to stop a tool
            self.post("progress", body)

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
        processes.kill_group(os.getpgid(0), signal.SIGKILL)

    def _pace_progress(self) -> None:
        while self._moved.wait():
            self._moved.clear()
            self._send_progress()
            time.sleep(_PROGRESS_EVERY_S)


class _LogHandler(logging.Handler):
    """Python's log records as lines of the task's log."""

    def __init__(self, channel: SocketChannel) -> None:
        super().__init__()
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        try:
            body = {
                "ts": int(record.created * 1000),
                "level": record.levelname.lower(),
                "message": self.format(record),
            }
            self._channel.post("log", body)
        except Exception:
            self.handleError(record)


def _capture_logging(channel: SocketChannel) -> None:
    """Send records to the task's log, in place of the console, where they would lose their level."""
    root = logging.getLogger()
    for handler in list(root.handlers):
        if isinstance(handler, logging.StreamHandler) and getattr(handler.stream, "name", "") in _CONSOLE:
            root.removeHandler(handler)
    root.addHandler(_LogHandler(channel))
    if root.level == logging.WARNING:  # Python's default: a task's log is the place for more
        root.setLevel(logging.INFO)
