"""The caller's side of handing tasks in: the host's supervisor writes them (docs/decisions/0023)."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import socket
import struct
import time
from collections import deque
from pathlib import Path
from typing import Any, cast
from weakref import WeakKeyDictionary

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
_IDLE_KEPT = 32


class HandingIn:
    """Hands new tasks to the supervisor of this host and store, for any number of threads and event loops.

    Both ways give what became of the task when it is on disk; None where nobody answers, or would rather
    not. Then it may be on disk all the same: whoever submits it again must do so under the same id.
    """

    def __init__(self, data_dir: Path, store: Store) -> None:
        self._folder = data_dir
        self._store = store
        self._idle: deque[_Connection] = deque(maxlen=_IDLE_KEPT)
        self._lines: WeakKeyDictionary[asyncio.AbstractEventLoop, _Line] = WeakKeyDictionary()
        self._process = os.getpid()
        self._not_before = 0.0

    def now(self, new: NewTask, queue_cap: int | None) -> Submission | None:
        """Wait for it."""
        if not self._may_ask():
            return None
        try:
            connection = self._take_idle() or self._connect()
        except OSError:
            return None
        try:
            answer = connection.ask(_request(new, queue_cap))
        except (OSError, NotAMessage):
            connection.close()
            self.close()  # the others are as old
            if connection.is_new or connection.is_silent:
                self._pause()
            return None
        connection.is_new = False
        self._idle.append(connection)
        return self._submission(new, answer)

    async def soon(self, new: NewTask, queue_cap: int | None) -> Submission | None:
        """Await it: it costs no thread."""
        if not self._may_ask():
            return None
        loop = asyncio.get_running_loop()
        line = self._lines.get(loop)
        try:
            if line is None or line.is_over:
                line = self._lines[loop] = await self._open_line(loop)
            async with asyncio.timeout(_PATIENCE_S):
                answer = await line.ask(_request(new, queue_cap))
        except TimeoutError:
            self._pause()
            self.close()
            return None
        except (OSError, NotAMessage):
            return None
        return self._submission(new, answer)

    def _may_ask(self) -> bool:
        if self._process != os.getpid():  # a fork's answers would be its parent's
            self._process = os.getpid()
            self._idle.clear()
            self._lines.clear()
        return time.monotonic() >= self._not_before

    def _pause(self) -> None:
        self._not_before = time.monotonic() + _PAUSE_S

    def _submission(self, new: NewTask, answer: dict[str, Any]) -> Submission | None:
        if not answer:
            return None
        position = answer["position"]
        if answer["task_id"] != new.task_id:
            return Submission(self._store.get(answer["task_id"]), answer["created"], position)
        if answer["submitted_at"] != new.submitted_at:  # the store's clock counts
            new = dataclasses.replace(new, submitted_at=answer["submitted_at"])
        return Submission(as_submitted(new, answer["seq"]), answer["created"], position)

    # -- connections

    def _take_idle(self) -> _Connection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _connect(self) -> _Connection:
        """Raises OSError where nobody is."""
        end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            patience = struct.pack("ll", _PATIENCE_S, 0)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
            hello = self._hello()
            with open_folder(self._folder) as address:
                end.connect(f"{address}/{SOCKET}")
            end.sendall(hello)
        except BaseException:
            end.close()
            raise
        return _Connection(end)

    async def _open_line(self, loop: asyncio.AbstractEventLoop) -> _Line:
        hello = self._hello()
        with open_folder(self._folder) as address:
            _, line = await loop.create_unix_connection(_Line, f"{address}/{SOCKET}")
        line.say(hello)
        return line

    def _hello(self) -> bytes:
        key = (self._folder / KEY).read_text()
        return encode("hello", {"key": key, "store": self._store.url, "version": VERSION})

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()
        for loop, line in list(self._lines.items()):
            del self._lines[loop]
            line.close()


def _request(new: NewTask, queue_cap: int | None) -> bytes:
    return encode("submit", {"task": to_json(new), "queue_cap": queue_cap})


class _Connection:
    """A question and its answer, one after another."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._answers = MessageReader(end)
        self.is_new, self.is_silent = True, False

    def ask(self, request: bytes) -> dict[str, Any]:
        """The answer. Raises OSError or NotAMessage when none comes."""
        self._end.sendall(request)
        while not self._answers.ended:
            for _, answer in self._answers.read():
                return answer
            if self._answers.dry:
                self.is_silent = not self._answers.ended
                break
        raise ConnectionResetError("the supervisor did not answer")

    def close(self) -> None:
        self._end.close()


class _Line(asyncio.Protocol):
    """Any number of questions of one event loop; the answers come in their order."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._asked: deque[asyncio.Future[dict[str, Any]]] = deque()
        self._came = b""
        self._answers = MessageReader(self)
        self.is_over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def say(self, message: bytes) -> None:
        self._transport.write(message)

    async def ask(self, request: bytes) -> dict[str, Any]:
        """The answer. Raises OSError when none comes."""
        answer: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._asked.append(answer)
        self._transport.write(request)
        return await answer

    def recv(self, size: int, /) -> bytes:
        came, self._came = self._came, b""
        return came

    def data_received(self, data: bytes) -> None:
        self._came = data
        try:
            answers = self._answers.read()
        except NotAMessage:
            self.close()
            return
        for _, answer in answers:
            asked = self._asked.popleft()
            if not asked.done():  # who asked may have gone
                asked.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_over = True
        while self._asked:
            asked = self._asked.popleft()
            if not asked.done():
                asked.set_exception(ConnectionResetError("the supervisor did not answer"))

    def close(self) -> None:
        """From any thread."""
        self.is_over = True
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            self._loop.call_soon_threadsafe(self._transport.abort)
