"""Submission over a socket in the data folder: the supervisor writes tasks of this host in its batches.

See docs/decisions/0023.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import os
import secrets
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...core.files import write_private
from ...core.task import NewTask, Submission, as_submitted
from ...store.protocol import Store
from ...version import VERSION
from .processes.messages import InvalidMessage, MessageReader, encode

log = logging.getLogger("backburner.supervisor")

SOCKET, KEY = "submit.sock", "submit.key"

#: The caller of a larger task writes it itself.
_LARGEST = 1 << 26
_BACKLOG = 128


class Hello(Struct, frozen=True):
    """First message of a caller."""

    key: str
    store: str
    version: str


class Submit(Struct, frozen=True):
    """A new task; `queue_cap` is the limit of its queue."""

    task: NewTask
    queue_cap: int | None


class Stored(Struct, frozen=True):
    """Answer to a submission: what the store has set. If the task existed before, the store has the rest."""

    task_id: str
    created: bool
    position: int | None
    seq: int
    submitted_at: int


@dataclass(frozen=True, slots=True, eq=False)
class SubmitRequest:
    """A new task whose caller waits until it is on disk."""

    new: NewTask
    queue_cap: int | None
    caller: _Caller


class SubmitServer:
    """Accepts tasks over a socket in the data folder.

    A caller proves that it can read the key there: a confined tool cannot submit in another's name. A caller
    that is declined, or gets no answer, writes its task itself.
    """

    def __init__(self, data_dir: Path, store_url: str, selector: selectors.BaseSelector) -> None:
        self._folder = data_dir
        self._selector = selector
        self._hello = Hello(secrets.token_hex(16), store_url, VERSION)
        self._listener: socket.socket | None = None
        self._identity: os.stat_result | None = None
        self._callers: set[_Caller] = set()
        self._waiting: list[SubmitRequest] = []

    def open(self) -> None:
        """Listen. Where no socket can be created, callers write their tasks themselves."""
        try:
            write_private(self._folder / KEY, self._hello.key)
            self._listener, self._identity = _listen(self._folder)
        except OSError as error:
            log.info("cannot accept tasks at %s: %s", self._folder, error)
            return
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def take(self) -> list[SubmitRequest]:
        """Return the waiting requests whose callers are still connected."""
        waiting, self._waiting = self._waiting, []
        return [one for one in waiting if one.caller in self._callers]

    def answer(self, requests: Sequence[SubmitRequest], results: Sequence[Submission | None]) -> None:
        """Answer requests that are on disk; None is a refused one."""
        for request, result in zip(requests, results, strict=True):
            self._answer(request.caller, None if result is None else _stored(result))

    def decline(self, requests: Sequence[SubmitRequest] | None = None) -> None:
        """Let the callers of these requests, or of all that wait, write their tasks themselves."""
        for request in self.take() if requests is None else requests:
            self._answer(request.caller, None)

    def close(self) -> None:
        """Decline all requests and stop listening."""
        self.decline()
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None
            with contextlib.suppress(OSError):
                path = self._folder / SOCKET
                if self._identity is not None and os.path.samestat(path.stat(), self._identity):
                    path.unlink()  # it is not our successor's
        for caller in list(self._callers):
            self._disconnect(caller)

    # -- callers

    def _accept(self) -> None:
        assert self._listener is not None, "it is registered while it is open"
        with contextlib.suppress(OSError):  # the caller has disconnected, or there are too many
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            caller = _Caller(connection, MessageReader(connection, _LARGEST))
            self._callers.add(caller)
            self._selector.register(connection, selectors.EVENT_READ, lambda: self._read(caller))

    def _read(self, caller: _Caller) -> None:
        try:
            while not caller.messages.dry:  # this also notices a caller that has disconnected
                for kind, body in caller.messages.read():
                    self._handle(caller, kind, body)
            caller.messages.dry = False
        except (InvalidMessage, msgspec.ValidationError) as error:
            log.warning("disconnecting a caller that sent an invalid submission: %s", error)
            self._disconnect(caller)
        if caller.messages.ended:
            self._disconnect(caller)

    def _handle(self, caller: _Caller, kind: str, body: dict[str, Any]) -> None:
        if not caller.is_known:
            if kind != "hello" or not self._is_welcome(msgspec.convert(body, Hello)):
                raise InvalidMessage("its caller has another version or store, or not the key")
            caller.is_known = True
        elif kind == "submit":
            submit = msgspec.convert(body, Submit)
            self._waiting.append(SubmitRequest(submit.task, submit.queue_cap, caller))
        else:
            raise InvalidMessage(f"there is no message {kind[:80]!r}")

    def _is_welcome(self, hello: Hello) -> bool:
        same_key = hmac.compare_digest(hello.key.encode(), self._hello.key.encode())
        return same_key and hello == self._hello

    def _answer(self, caller: _Caller, stored: Stored | None) -> None:
        try:
            caller.connection.send(encode("answer", {"stored": stored}))
        except OSError:
            self._disconnect(caller)

    def _disconnect(self, caller: _Caller) -> None:
        if caller in self._callers:
            self._callers.remove(caller)
            self._selector.unregister(caller.connection)
            caller.connection.close()


@dataclass(eq=False)
class _Caller:
    """One connection."""

    connection: socket.socket
    messages: MessageReader
    is_known: bool = False


def _stored(result: Submission) -> Stored:
    task = result.task
    return Stored(task.task_id, result.created, result.position, task.seq, task.submitted_at)


def _listen(folder: Path) -> tuple[socket.socket, os.stat_result]:
    """Create the socket, for this user only, in place of any other. Raises OSError."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    name = f".{SOCKET}-{os.getpid()}"
    path = folder / name
    try:
        listener.setblocking(False)
        path.unlink(missing_ok=True)
        with open_folder(folder) as address:
            listener.bind(f"{address}/{name}")
        path.chmod(0o600)
        listener.listen(_BACKLOG)
        identity = path.stat()
        path.rename(folder / SOCKET)
    except BaseException:
        listener.close()
        raise
    return listener, identity


@contextlib.contextmanager
def open_folder(folder: Path) -> Any:
    """Yield a short path of the folder: socket addresses are at most 107 bytes long. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


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
