"""Change notifications: the Watch protocol, and the watches of a SQLite store.

Topics are `task:<task_id>` (its state, progress, questions or logs changed), `steer:<task_id>` (it was
cancelled or answered, which its holder must see) and `queue:<name>` (a task can be claimed there).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..core.files import make_private

if TYPE_CHECKING:
    import sqlite3

#: The topic that says that anything may have changed.
ANYTHING = "*"
STEER = "steer:"

#: Small enough that the unread messages of a listener fit into a sender's buffer.
_LARGEST = 8_000
_POLL_S = 0.2
#: The prefix of the sockets that only need topics of steering.
_STEERING = "steer-"
#: Two changes of a folder may have the same timestamp, so a folder that has just changed is read again.
_TICK_NS = 20_000_000
#: Linux keeps as few as ten unread datagrams; from this number on, some may have been lost.
_MAY_HAVE_OVERFLOWED = 8


def of_steering(topics: set[str]) -> set[str]:
    """Return the topics for the holders of leases."""
    return {topic for topic in topics if topic.startswith(STEER) or topic == ANYTHING}


class Watch(Protocol):
    """Receives the topics of changes, from any process, within milliseconds and without polling.

    A watch may receive too much. It misses topics only when its socket was deleted, or when a writer died
    right after its commit. So users also read the store now and then, and call `mend`.
    """

    def fileno(self) -> int:
        """Return a file descriptor that is readable when there may be something to `drain`."""
        ...

    def drain(self) -> set[str]:
        """Return the topics since the last drain, without blocking."""
        ...

    def wait(self, timeout_s: float | None = None) -> set[str]:
        """Block until there are topics or the time is over; then `drain`."""
        ...

    def mend(self) -> None:
        """Recreate a deleted socket. Cheap, and never fails."""
        ...

    def close(self) -> None: ...


def _wait_readable(fd: int, timeout_s: float | None) -> None:
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    poller.poll(None if timeout_s is None else max(0, timeout_s) * 1000)


class SocketFolder:
    """Notifications between the processes of one host: a folder with a datagram socket per listener.

    A writer sends the topics to every socket in the folder, and removes sockets without a process. A deleted
    folder is made again when it is needed.
    """

    def __init__(self, folder: Path) -> None:
        """Never fails: if the folder cannot be made, `listen` raises."""
        self._folder = folder
        self._fd = -1
        self._names: list[str] = []
        self._read_at = 0
        self._senders: dict[str, socket.socket] = {}
        self._lock = threading.Lock()
        with contextlib.suppress(OSError):
            self._open()

    def announce(self, topics: set[str], known: tuple[Watch, frozenset[str]] | None = None) -> None:
        """Send topics to every listener, except those that one watch has `known` already.

        Never blocks and never fails, because the change is committed.
        """
        with self._lock, contextlib.suppress(OSError):
            knowing = known[0].name if known is not None and isinstance(known[0], SocketWatch) else None
            message, steering = _message(topics), of_steering(topics)
            for name in self._listeners():
                if name.startswith(_STEERING):
                    if steering:
                        self._send(_message(steering), name)
                elif name != knowing:
                    self._send(message, name)
                elif known is not None and not topics <= known[1]:
                    self._send(_message(topics - known[1]), name)

    def _listeners(self) -> list[str]:
        """Return the names of the sockets, from a cache unless the folder has changed."""
        self._open()
        changed_at = os.fstat(self._fd).st_mtime_ns
        if changed_at != self._read_at or time.time_ns() - changed_at < _TICK_NS:
            self._names, self._read_at = os.listdir(self._fd), changed_at
            for gone in self._senders.keys() - self._names:
                self._senders.pop(gone).close()
        return self._names

    def _send(self, message: bytes, name: str) -> None:
        try:
            if name not in self._senders:
                self._senders[name] = self._sender(name)
            self._senders[name].send(message)
        except ConnectionRefusedError:
            if (sender := self._senders.pop(name, None)) is not None:
                sender.close()
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=self._fd)
        except OSError:
            return  # full: its owner notices that it may have missed topics

    def _sender(self, name: str) -> socket.socket:
        """Return a socket for one listener. Unread messages of another one do not fill its buffer."""
        sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            sender.setblocking(False)
            sender.connect(self._address(name))
        except BaseException:
            sender.close()
            raise
        return sender

    def listen(self, *, steering: bool = False) -> SocketWatch:
        """Raises OSError where sockets cannot be made, as on some network file systems."""
        return SocketWatch(self, _STEERING if steering else "")

    def bind(self, prefix: str) -> tuple[socket.socket, Path]:
        """Make a socket in the folder. Raises OSError."""
        name = f"{prefix}{os.getpid()}-{secrets.token_hex(4)}"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            listener.setblocking(False)
            with self._lock:
                self._open()
                listener.bind(self._address(name))
        except BaseException:
            listener.close()
            raise
        return listener, self._folder / name

    def _address(self, name: str) -> str:
        # Socket addresses have at most 107 bytes; through the open folder, any path fits.
        return f"/proc/self/fd/{self._fd}/{name}"

    def _open(self) -> None:
        """Open the folder at its path, and make it if it is missing. Raises OSError."""
        if self._fd >= 0 and _same_file(self._folder, self._fd):
            return
        make_private(self._folder)
        opened = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._release()
        self._fd = opened

    def _release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        while self._senders:
            self._senders.popitem()[1].close()

    def close(self) -> None:
        with self._lock:
            self._release()


def _message(topics: set[str]) -> bytes:
    message = "\n".join(topics).encode()
    return message if len(message) <= _LARGEST else ANYTHING.encode()


def _same_file(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except OSError:
        return False


class SocketWatch:
    """A listener in a SocketFolder. Its `fileno` stays the same when its socket is recreated."""

    def __init__(self, folder: SocketFolder, prefix: str = "") -> None:
        """Raises OSError."""
        self._folder = folder
        self._prefix = prefix
        self._listener, self._path = folder.bind(prefix)
        self._poll = select.epoll()
        self._poll.register(self._listener, select.EPOLLIN)

    @property
    def name(self) -> str:
        return self._path.name

    def fileno(self) -> int:
        return self._poll.fileno()

    def drain(self) -> set[str]:
        heard: set[str] = set()
        messages = 0
        while True:
            try:
                message = self._listener.recv(_LARGEST + 1)
            except BlockingIOError:
                break
            messages += 1
            # Any process that may write here can send anything; unknown topics are harmless.
            heard.update(message.decode(errors="replace").split("\n"))
            if len(message) > _LARGEST:
                heard.add(ANYTHING)
        if messages >= _MAY_HAVE_OVERFLOWED:
            heard.add(ANYTHING)
        return heard

    def wait(self, timeout_s: float | None = None) -> set[str]:
        _wait_readable(self.fileno(), timeout_s)
        return self.drain()

    def mend(self) -> None:
        if self._path.exists():
            return
        with contextlib.suppress(OSError):  # it hears nothing until the next try
            listener, path = self._folder.bind(self._prefix)
            self._poll.unregister(self._listener)
            self._listener.close()
            self._listener, self._path = listener, path
            self._poll.register(listener, select.EPOLLIN)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
        self._poll.close()
        self._listener.close()


class PollingWatch:
    """A watch for file systems without sockets: a thread polls the database for other writes."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """The watch closes the connection."""
        self._connection = connection
        self._reader, self._writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._over = threading.Event()
        self._seen = self._version()
        self._thread = threading.Thread(target=self._run, name="backburner-poll", daemon=True)
        self._thread.start()

    def _version(self) -> object:
        import sqlite3

        try:
            return self._connection.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.Error:
            return object()  # unknown, so anything may have changed

    def _run(self) -> None:
        while not self._over.wait(_POLL_S):
            before, self._seen = self._seen, self._version()
            if self._seen != before:
                with contextlib.suppress(OSError):
                    self._writer.send(b"!")
        self._connection.close()

    def fileno(self) -> int:
        return self._reader.fileno()

    def drain(self) -> set[str]:
        heard: set[str] = set()
        with contextlib.suppress(BlockingIOError):
            while self._reader.recv(16):
                heard.add(ANYTHING)
        return heard

    def wait(self, timeout_s: float | None = None) -> set[str]:
        _wait_readable(self.fileno(), timeout_s)
        return self.drain()

    def mend(self) -> None: ...

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._reader.close()
        self._writer.close()
