"""Submits tasks through the host's supervisor, which writes them in its batches (docs/decisions/0023)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import time
from collections import deque
from pathlib import Path
from typing import Any, cast
from weakref import WeakKeyDictionary

import msgspec
from msgspec.structs import replace

from ...core.submission import Submission, as_submitted
from ...core.task import NewTask
from ...store.protocol import Store
from ...version import VERSION
from .processes.messages import InvalidMessage, MessageReader, encode
from .supervisor.submit_server import KEY, SOCKET, Hello, Stored, Submit, open_folder

#: After this time without an answer, the caller writes the task itself, under the same id.
_TIMEOUT_S = 5
#: How long a supervisor that did not answer is left alone.
_PAUSE_S = 5.0
_IDLE_KEPT = 32


class SubmitClient:
    """Client of the host's supervisor, for any number of threads and event loops.

    `submit` and `submit_async` return when the task is on disk; None when the supervisor declines or does not
    answer. The task may be on disk even then: the caller must submit it again under the same id.
    """

    def __init__(self, data_dir: Path, store: Store) -> None:
        self._folder = data_dir
        self._store = store
        self._idle: deque[_Connection] = deque(maxlen=_IDLE_KEPT)
        self._async_connections: WeakKeyDictionary[asyncio.AbstractEventLoop, _AsyncConnection] = (
            WeakKeyDictionary()
        )
        self._process = os.getpid()
        self._not_before = 0.0

    def submit(self, new: NewTask, queue_cap: int | None) -> Submission | None:
        if not self._may_ask():
            return None
        try:
            connection = self._take_idle() or self._connect()
        except OSError:
            return None
        try:
            answer = connection.request(_request(new, queue_cap))
        except (OSError, InvalidMessage):
            connection.close()
            self.close()  # the other connections are as old
            if connection.is_new or connection.is_silent:
                self._pause()
            return None
        connection.is_new = False
        self._idle.append(connection)
        return self._submission(new, answer)

    async def submit_async(self, new: NewTask, queue_cap: int | None) -> Submission | None:
        if not self._may_ask():
            return None
        loop = asyncio.get_running_loop()
        connection = self._async_connections.get(loop)
        try:
            if connection is None or connection.closed:
                connection = self._async_connections[loop] = await self._connect_async(loop)
            async with asyncio.timeout(_TIMEOUT_S):
                answer = await connection.request(_request(new, queue_cap))
        except TimeoutError:
            self._pause()
            self.close()
            return None
        except (OSError, InvalidMessage):
            return None
        return self._submission(new, answer)

    def _may_ask(self) -> bool:
        if self._process != os.getpid():  # after a fork, the answers would go to the parent
            self._process = os.getpid()
            self._idle.clear()
            self._async_connections.clear()
        return time.monotonic() >= self._not_before

    def _pause(self) -> None:
        self._not_before = time.monotonic() + _PAUSE_S

    def _submission(self, new: NewTask, answer: dict[str, Any]) -> Submission | None:
        if answer.get("stored") is None:
            return None
        stored = msgspec.convert(answer["stored"], Stored)
        if stored.task_id != new.task_id:
            return Submission(self._store.get(stored.task_id), stored.created, stored.position)
        if stored.submitted_at != new.submitted_at:  # the store's clock counts
            new = replace(new, submitted_at=stored.submitted_at)
        return Submission(as_submitted(new, stored.seq), stored.created, stored.position)

    # -- connections

    def _take_idle(self) -> _Connection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _connect(self) -> _Connection:
        """Connect. Raises OSError when no supervisor listens."""
        end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            timeout = struct.pack("ll", _TIMEOUT_S, 0)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
            hello = self._hello()
            with open_folder(self._folder) as address:
                end.connect(f"{address}/{SOCKET}")
            end.sendall(hello)
        except BaseException:
            end.close()
            raise
        return _Connection(end)

    async def _connect_async(self, loop: asyncio.AbstractEventLoop) -> _AsyncConnection:
        hello = self._hello()
        with open_folder(self._folder) as address:
            _, connection = await loop.create_unix_connection(_AsyncConnection, f"{address}/{SOCKET}")
        connection.send(hello)
        return connection

    def _hello(self) -> bytes:
        key = (self._folder / KEY).read_text()
        return encode("hello", Hello(key, self._store.url, VERSION))

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()
        for loop, connection in list(self._async_connections.items()):
            del self._async_connections[loop]
            connection.close()


def _request(new: NewTask, queue_cap: int | None) -> bytes:
    return encode("submit", Submit(new, queue_cap))


class _Connection:
    """Blocking connection: one request at a time."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._answers = MessageReader(end)
        self.is_new, self.is_silent = True, False

    def request(self, request: bytes) -> dict[str, Any]:
        """Send a request and return the answer. Raises OSError or InvalidMessage when none comes."""
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


class _AsyncConnection(asyncio.Protocol):
    """Connection of one event loop: any number of requests, answered in their order."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pending: deque[asyncio.Future[dict[str, Any]]] = deque()
        self._received = b""
        self._answers = MessageReader(self)
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self, message: bytes) -> None:
        self._transport.write(message)

    async def request(self, request: bytes) -> dict[str, Any]:
        """Send a request and return the answer. Raises OSError when none comes."""
        answer: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._pending.append(answer)
        self._transport.write(request)
        return await answer

    def recv(self, size: int, /) -> bytes:
        received, self._received = self._received, b""
        return received

    def data_received(self, data: bytes) -> None:
        self._received = data
        try:
            answers = self._answers.read()
        except InvalidMessage:
            self.close()
            return
        for _, answer in answers:
            pending = self._pending.popleft()
            if not pending.done():  # its caller may have been cancelled
                pending.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        while self._pending:
            pending = self._pending.popleft()
            if not pending.done():
                pending.set_exception(ConnectionResetError("the supervisor did not answer"))

    def close(self) -> None:
        """Close it, from any thread."""
        self.closed = True
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            self._loop.call_soon_threadsafe(self._transport.abort)
