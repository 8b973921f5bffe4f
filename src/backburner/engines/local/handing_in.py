"""The caller's side of handing tasks in: the host's supervisor writes them (docs/decisions/0023)."""

from __future__ import annotations

import dataclasses
import os
import socket
import struct
import time
from collections import deque
from pathlib import Path
from typing import Any

from ...store import Store
from ...submission import Submission, as_submitted, to_json
from ...task import NewTask
from ...version import VERSION
from .intake import KEY, SOCKET, open_folder
from .wire import MessageReader, NotAMessage, encode

#: How long a supervisor may take to answer. Then the task is written here, under the same id.
_PATIENCE_S = 5
#: How long one that did not answer is left alone.
_PAUSE_S = 5.0
_CONNECTS_KEPT = 32


class HandingIn:
    """Hands new tasks to the supervisor of this host and store; for any number of threads at once."""

    def __init__(self, data_dir: Path, store: Store) -> None:
        self._folder = data_dir
        self._store = store
        self._idle: deque[_Connection] = deque(maxlen=_CONNECTS_KEPT)
        self._process = os.getpid()
        self._not_before = 0.0

    def __call__(self, new: NewTask, queue_cap: int | None) -> Submission | None:
        """What became of it, when it is on disk; None where nobody answers, or would rather not.

        Then it may be on disk all the same: whoever submits it again must do so under the same id.
        """
        if self._process != os.getpid():  # a fork's answers would be its parent's
            self.close()
            self._process = os.getpid()
        if time.monotonic() < self._not_before:
            return None
        try:
            connection = self._take_idle() or self._connect()
        except OSError:
            return None
        try:
            answer = connection.ask("submit", {"task": to_json(new), "queue_cap": queue_cap})
        except (OSError, NotAMessage):
            connection.close()
            self.close()  # the others are as old
            self._not_before = time.monotonic() + _PAUSE_S if connection.is_new or connection.is_silent else 0
            return None
        connection.is_new = False
        self._idle.append(connection)
        return self._submission(new, answer)

    def _take_idle(self) -> _Connection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _submission(self, new: NewTask, answer: dict[str, Any]) -> Submission | None:
        if not answer:
            return None
        position = answer["position"]
        if answer["task_id"] != new.task_id:
            return Submission(self._store.get(answer["task_id"]), answer["created"], position)
        times = {name: answer[name] for name in ("submitted_at", "expires_at")}
        if times["submitted_at"] != new.submitted_at:  # the store's clock counts
            new = dataclasses.replace(new, **times)
        return Submission(as_submitted(new, answer["seq"]), answer["created"], position)

    def _connect(self) -> _Connection:
        """Raises OSError where nobody is."""
        key = (self._folder / KEY).read_text()
        end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            patience = struct.pack("ll", _PATIENCE_S, 0)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
            with open_folder(self._folder) as address:
                end.connect(f"{address}/{SOCKET}")
            end.sendall(encode("hello", {"key": key, "store": self._store.url, "version": VERSION}))
        except BaseException:
            end.close()
            raise
        return _Connection(end)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


class _Connection:
    """A question and its answer, one after another."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._answers = MessageReader(end)
        self.is_new, self.is_silent = True, False

    def ask(self, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer. Raises OSError or NotAMessage when none comes."""
        self._end.sendall(encode(kind, body))
        while not self._answers.ended:
            for _, answer in self._answers.read():
                return answer
            if self._answers.dry:
                self.is_silent = not self._answers.ended
                break
        raise ConnectionResetError("the supervisor did not answer")

    def close(self) -> None:
        self._end.close()
