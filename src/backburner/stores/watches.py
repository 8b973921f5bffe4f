"""Hearing of changes: what the watches of both databases share, and SQLite's between processes."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from ..folders import make_private
from ..watch import ANYTHING, Watch, of_steering

#: Small enough that what a listener has not read yet fits into what one sender may have under way.
_LARGEST = 8_000
_POLL_S = 0.2
#: How the names of those begin who hear only what is for the holders of tasks.
_STEERING = "steer-"
#: Two changes of a folder may have the same time, so one that has just changed is read again.
_TICK_NS = 20_000_000
#: Linux keeps as few as ten unread datagrams; from so many on, some may have been lost.
_MAY_HAVE_OVERFLOWED = 8


def _readable(fd: int, timeout_s: float | None) -> bool:
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(None if timeout_s is None else max(0, timeout_s) * 1000))


class PipeWatch:
    """A watch that is fed by a thread of this process: `hear` puts topics in, the reader takes them out."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._lock = threading.Lock()
        self._topics: set[str] = set()
        self._stop: Callable[[], None] = lambda: None

    def fed_by(self, stop: Callable[[], None]) -> None:
        """Name what `close` must call to end the feeding thread."""
        self._stop = stop

    def hear(self, topics: Iterable[str]) -> None:
        with self._lock:
            was_quiet = not self._topics
            self._topics.update(topics)
            if was_quiet and self._topics:
                with contextlib.suppress(OSError):
                    self._writer.send(b"!")

    def fileno(self) -> int:
        return self._reader.fileno()

    def drain(self) -> set[str]:
        with self._lock:
            with contextlib.suppress(BlockingIOError):
                self._reader.recv(16)
            heard, self._topics = self._topics, set()
        return heard

    def wait(self, timeout_s: float | None = None) -> set[str]:
        _readable(self.fileno(), timeout_s)
        return self.drain()

    def mend(self) -> None:
        """The thread that feeds it sees to that."""

    def close(self) -> None:
        self._stop()
        self._reader.close()
        self._writer.close()


class SocketFolder:
    """News between processes of one host: a folder with a datagram socket for each listener.

    Whoever changes the store writes the topics to every socket in the folder; a socket that
    nobody holds any more is removed by the next writer. Idle, it costs nothing. If somebody
    deletes the folder, the next one who needs it makes it again.
    """

    def __init__(self, folder: Path) -> None:
        """Never fails: where the folder cannot be made, `listen` says so."""
        self._folder = folder
        self._fd = -1
        self._names: list[str] = []
        self._read_at = 0
        self._senders: dict[str, socket.socket] = {}
        self._lock = threading.Lock()
        with contextlib.suppress(OSError):
            self._renew()

    def announce(self, topics: set[str], known: tuple[Watch, frozenset[str]] | None = None) -> None:
        """Tell every listener, but one what is `known` to it already.

        It never blocks and never fails, for what is announced is committed already.
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
        """Their names. The folder is read only when its own time says that it has changed."""
        self._renew()
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
            return  # full: its owner will see that it may have missed something

    def _sender(self, name: str) -> socket.socket:
        """Unread messages count against the socket that sent them.

        With one for each listener, those that nobody reads do not use up what the others' need.
        """
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

    def bind(self, beginning: str) -> tuple[socket.socket, Path]:
        """A new socket in the folder, whose name begins so, and where it is. Raises OSError."""
        name = f"{beginning}{os.getpid()}-{secrets.token_hex(4)}"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            listener.setblocking(False)
            with self._lock:
                self._renew()
                listener.bind(self._address(name))
        except BaseException:
            listener.close()
            raise
        return listener, self._folder / name

    def _address(self, name: str) -> str:
        # Socket addresses are at most 107 bytes long; through the open folder, any path fits.
        return f"/proc/self/fd/{self._fd}/{name}"

    def _renew(self) -> None:
        """Open the folder that is at its path now; it is made if there is none. Raises OSError."""
        if self._fd >= 0 and _same_file(self._folder, self._fd):
            return
        make_private(self._folder)
        opened = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._let_go()
        self._fd = opened

    def _let_go(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        while self._senders:
            self._senders.popitem()[1].close()

    def close(self) -> None:
        with self._lock:
            self._let_go()


def _message(topics: set[str]) -> bytes:
    message = "\n".join(topics).encode()
    return message if len(message) <= _LARGEST else ANYTHING.encode()


def _same_file(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except OSError:
        return False


class SocketWatch:
    """One listener in a SocketFolder. Its `fileno` stays the same when its socket is made anew."""

    def __init__(self, folder: SocketFolder, beginning: str = "") -> None:
        """Raises OSError."""
        self._folder = folder
        self._beginning = beginning
        self._listener, self._path = folder.bind(beginning)
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
            # Anybody who may write here could send anything: what is no topic concerns nobody.
            heard.update(message.decode(errors="replace").split("\n"))
            if len(message) > _LARGEST:
                heard.add(ANYTHING)
        if messages >= _MAY_HAVE_OVERFLOWED:
            heard.add(ANYTHING)
        return heard

    def wait(self, timeout_s: float | None = None) -> set[str]:
        _readable(self.fileno(), timeout_s)
        return self.drain()

    def mend(self) -> None:
        if self._path.exists():
            return
        with contextlib.suppress(OSError):  # then it stays deaf until the next try
            listener, path = self._folder.bind(self._beginning)
            self._poll.unregister(self._listener)
            self._listener.close()
            self._listener, self._path = listener, path
            self._poll.register(listener, select.EPOLLIN)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
        self._poll.close()
        self._listener.close()


def polling_watch(connection: sqlite3.Connection) -> PipeWatch:
    """Where no socket can be made: look now and then whether anybody has written. Closes the connection."""
    watch, over = PipeWatch(), threading.Event()

    def version() -> object:
        try:
            return connection.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.Error:
            return object()  # it cannot be known, so anything may have changed

    def look(seen: object) -> None:
        while not over.wait(_POLL_S):
            before, seen = seen, version()
            if seen != before:
                watch.hear({ANYTHING})
        connection.close()

    thread = threading.Thread(target=look, args=(version(),), name="backburner-poll", daemon=True)
    thread.start()

    def stop() -> None:
        over.set()
        thread.join()

    watch.fed_by(stop)
    return watch
