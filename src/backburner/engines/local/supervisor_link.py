"""A runner's end of the channel to its supervisor, and what an attempt may say on it."""

from __future__ import annotations

import itertools
import json
import math
import os
import signal
import socket
import threading
import time
from typing import Any

from ... import json_text
from ...errors import ArtifactStorageError, InvalidJson, InvalidRequest, TaskCancelled
from ...execution import Execution
from ...task_log_lines import OPERATOR_STREAM
from . import linux
from .task_log import LONGEST_LINE, LONGEST_RECORD, RECORD
from .wire import MessageReader, encode

_PROGRESS_EVERY_S = 0.1
_LONGEST_TEXT = 4_000
_LARGEST_CONTEXT = 64_000


class SupervisorLink:
    """Sends what attempts say, and hears the supervisor. It is dead in a process that a tool forks."""

    def __init__(self, work: socket.socket, steer: socket.socket) -> None:
        self._work = work
        self._steer = steer
        self._output = os.dup(1)  # the tool may close its own
        self._sending = threading.Lock()
        self._logging = threading.Lock()
        self._numbers = itertools.count(1)
        self._replies: dict[int, Any] = {}
        self._replied = threading.Condition()
        self._current: AttemptChannel | None = None
        self._cancelled: dict[str, Any] | None = None  # the attempt that was; it may not have begun yet
        self._moved = threading.Event()
        self._forked = False
        os.register_at_fork(after_in_child=self._die)

    def _die(self) -> None:
        """In a child of the tool: it must neither speak for the task nor hear what is for its parent."""
        self._forked = True
        self._work.close()
        self._steer.close()
        # Another thread may have held these at the moment of the fork.
        self._sending, self._logging = threading.Lock(), threading.Lock()

    def channel(self, task_id: str, attempt: int) -> AttemptChannel:
        """The channel of the attempt that begins now; that of the last one is over."""
        self._current = AttemptChannel(self, task_id, attempt)
        return self._current

    def log(self, level: str, message: str, stream: str = "log") -> None:
        """Write a record in line with what is printed, so that all of it stays in order."""
        message = str(message)
        record = {"ts": time.time_ns() // 1_000_000, "level": str(level), "message": message}
        if stream != "log":
            record["stream"] = stream
        data = memoryview(RECORD + json.dumps(record).encode() + b"\n")
        # A longer one would not be taken for a record.
        if len(data) > LONGEST_RECORD and stream in ("log", OPERATOR_STREAM):
            for start in range(0, len(message), LONGEST_LINE):
                self.log(level, message[start : start + LONGEST_LINE], stream)
            return
        with self._logging:
            while data:
                data = data[os.write(self._output, data) :]

    def send(self, kind: str, body: dict[str, Any]) -> None:
        with self._sending:
            self._work.sendall(encode(kind, body))

    def request(self, channel: AttemptChannel, kind: str, body: dict[str, Any]) -> Any:
        """Say something and wait for the reply. Raises ArtifactStorageError for an artifact."""
        if self._forked:
            reason = "this is another process than the one that was given the task, and cannot speak for it"
            raise InvalidRequest(reason=reason)
        number = next(self._numbers)
        with self._sending:
            channel.check_not_over()
            self._work.sendall(encode(kind, {**body, "number": number}))
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
        """Send the last progress and the outcome; nothing of this attempt comes after it."""
        with self._sending:
            self._send_progress()
            channel.over = True
            self._work.sendall(encode("done", body))

    def progress_is_there(self) -> None:
        if not self._moved.is_set():
            self._moved.set()

    def _send_progress(self) -> None:
        """Only under the lock: progress must not come after the outcome of its attempt."""
        body = self._current.take_progress() if self._current is not None else None
        if body is not None:
            self._work.sendall(encode("progress", body))

    def listen(self, execution: Execution) -> None:
        """Hear the supervisor, and send progress now and then, each on a thread of its own."""
        threading.Thread(target=self._hear, args=(execution,), name="backburner-steer", daemon=True).start()
        threading.Thread(target=self._pace_progress, name="backburner-progress", daemon=True).start()

    def _hear(self, execution: Execution) -> None:
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
        # The supervisor is gone, or wants this process gone: nothing of it may stay.
        execution.wait_for_end()
        linux.kill_group(os.getpgid(0), signal.SIGKILL)

    def _pace_progress(self) -> None:
        while self._moved.wait():
            self._moved.clear()
            with self._sending:
                self._send_progress()
            time.sleep(_PROGRESS_EVERY_S)


class AttemptChannel:
    """How the context of one attempt reaches the supervisor; every message names the attempt."""

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
        self._link.progress_is_there()

    def finish(self, outcome: dict[str, Any]) -> None:
        self._link.finish(self, {**outcome, **self.name})

    def take_progress(self) -> dict[str, Any] | None:
        """The latest progress, as a store can keep it, if there is any that was not sent."""
        body, self._latest = self._latest, None
        return None if body is None or self.over else {**_storable(body), **self.name}

    def check_not_over(self) -> None:
        """Raises InvalidRequest. A thread that outlives its task must not speak in another's time."""
        if self.over:
            raise InvalidRequest(reason=f"task {self.name['task_id']} is over")


def _storable(progress: dict[str, Any]) -> dict[str, Any]:
    """What a store can keep of it: what JSON cannot hold is no reason to stop a tool."""
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
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return number if math.isfinite(number) else None
