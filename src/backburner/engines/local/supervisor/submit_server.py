"""Accepts tasks from processes of this host, for the supervisor's next batch (docs/decisions/0023)."""

from __future__ import annotations

import contextlib
import hmac
import logging
import os
import secrets
import selectors
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from ....core.files import write_private
from ....core.submission import Submission
from ....core.task import NewTask
from ....version import VERSION
from ..processes.messages import InvalidMessage, MessageReader, encode

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
