"""The supervisor's side of handing tasks in: it writes them with all else it has (docs/decisions/0023)."""

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

from ...json_file import write_private
from ...submission import Submission, from_json
from ...task import NewTask
from ...version import VERSION
from .wire import MessageReader, NotAMessage, encode

log = logging.getLogger("backburner.supervisor")

SOCKET, KEY = "intake.sock", "intake.key"

#: A new task that is larger is not taken: its caller can write it itself.
_LARGEST = 1 << 26
_BACKLOG = 128


@dataclass(frozen=True, slots=True, eq=False)
class HandedIn:
    """A task that somebody wants to have kept, and waits."""

    new: NewTask
    queue_cap: int | None
    caller: _Caller


class Intake:
    """Takes tasks from the processes of this host, over a socket in the data folder.

    Only who can read the key there is heard: a tool that may not see the folder cannot submit in
    another's name. A caller that gets no answer writes its task itself, so any may be declined.
    """

    def __init__(self, data_dir: Path, store_url: str, selector: selectors.BaseSelector) -> None:
        self._folder = data_dir
        self._selector = selector
        self._hello = {"key": secrets.token_hex(16), "store": store_url, "version": VERSION}
        self._listener: socket.socket | None = None
        self._identity: os.stat_result | None = None
        self._callers: set[_Caller] = set()
        self._waiting: list[HandedIn] = []

    def open(self) -> None:
        """Be there for callers. Where no socket can be made, they write for themselves."""
        try:
            write_private(self._folder / KEY, self._hello["key"])
            self._listener, self._identity = _listen(self._folder)
        except OSError as error:
            log.info("tasks cannot be handed in at %s: %s", self._folder, error)
            return
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def __bool__(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiting)

    def take(self) -> list[HandedIn]:
        """All that wait, but those whose callers have gone: they have not been told that it is kept."""
        waiting, self._waiting = self._waiting, []
        return [one for one in waiting if one.caller in self._callers]

    def answer(self, handed_in: Sequence[HandedIn], kept: Sequence[Submission | None]) -> None:
        """The tasks are on disk, but those that were refused."""
        for one, became in zip(handed_in, kept, strict=True):
            self._say(one.caller, {} if became is None else _kept(became))

    def decline(self, handed_in: Sequence[HandedIn] | None = None) -> None:
        """These, or all that wait, are not written here."""
        for one in self.take() if handed_in is None else handed_in:
            self._say(one.caller, {})

    def close(self) -> None:
        """From now on everybody writes for himself."""
        self.decline()
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None
            with contextlib.suppress(OSError):
                path = self._folder / SOCKET
                if self._identity is not None and os.path.samestat(path.stat(), self._identity):
                    path.unlink()  # and it is not our successor's
        for caller in list(self._callers):
            self._part_from(caller)

    # -- callers

    def _accept(self) -> None:
        assert self._listener is not None, "it is heard only while it is there"
        with contextlib.suppress(OSError):  # the caller is gone already, or there are too many
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            caller = _Caller(connection, MessageReader(connection, _LARGEST))
            self._callers.add(caller)
            self._selector.register(connection, selectors.EVENT_READ, lambda: self._hear(caller))

    def _hear(self, caller: _Caller) -> None:
        try:
            while not caller.messages.dry:  # also to see whether the caller is still there
                for kind, body in caller.messages.read():
                    self._take_message(caller, kind, body)
            caller.messages.dry = False
        except (NotAMessage, TypeError, ValueError, KeyError) as error:
            log.warning("a task was handed in that cannot be read: %s", error)
            self._part_from(caller)
        if caller.messages.ended:
            self._part_from(caller)

    def _take_message(self, caller: _Caller, kind: str, body: dict[str, Any]) -> None:
        if not caller.is_known:
            if kind != "hello" or not self._is_welcome(body):
                raise NotAMessage("its caller is of another version, or of another store, or has no key")
            caller.is_known = True
        elif kind == "submit":
            new = from_json(body["task"])
            self._waiting.append(HandedIn(new, body["queue_cap"], caller))
        else:
            raise NotAMessage(f"there is no message {kind[:80]!r}")

    def _is_welcome(self, hello: dict[str, Any]) -> bool:
        same_key = hmac.compare_digest(str(hello.get("key")), self._hello["key"])
        return same_key and hello == self._hello

    def _say(self, caller: _Caller, answer: dict[str, Any]) -> None:
        try:
            caller.connection.send(encode("kept", answer))
        except OSError:
            self._part_from(caller)

    def _part_from(self, caller: _Caller) -> None:
        if caller in self._callers:
            self._callers.remove(caller)
            self._selector.unregister(caller.connection)
            caller.connection.close()


@dataclass(eq=False)
class _Caller:
    """One connection: a caller has one task at a time handed in on it."""

    connection: socket.socket
    messages: MessageReader
    is_known: bool = False


def _kept(became: Submission) -> dict[str, Any]:
    """What the caller does not know of it yet. If it was there before, the store has the rest."""
    task = became.task
    return {
        "task_id": task.task_id,
        "created": became.created,
        "position": became.position,
        "seq": task.seq,
        "submitted_at": task.submitted_at,
    }


def _listen(folder: Path) -> tuple[socket.socket, os.stat_result]:
    """A socket in the place of whatever is there; only for this user. Raises OSError."""
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
    """The folder under a short name: socket addresses are at most 107 bytes long. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
