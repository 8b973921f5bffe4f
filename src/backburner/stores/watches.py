"""Hearing of changes: what the watches of both databases share, and SQLite's between processes."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import socket
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from ..store import ANYTHING

_LARGEST = 32_000
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

    def close(self) -> None:
        self._stop()
        self._reader.close()
        self._writer.close()


class SocketFolder:
    """News between processes of one host: a folder with a datagram socket for each listener.

    Whoever changes the store writes the topics to every socket in the folder; a socket that
    nobody holds any more is removed by the next writer. Idle, it costs nothing.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        # Socket addresses are at most 107 bytes long; through the open folder, any path fits.
        self._fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def _address(self, name: str) -> str:
        return f"/proc/self/fd/{self._fd}/{name}"

    def announce(self, topics: set[str]) -> None:
        """Tell every listener; never blocks and never fails."""
        message = "\n".join(topics).encode()
        if len(message) > _LARGEST:
            message = ANYTHING.encode()
        for name in os.listdir(self._fd):
            # Unread messages count against the socket that sent them. With one for each listener, those that
            # nobody reads do not use up what the others' need.
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                try:
                    sender.sendto(message, self._address(name))
                except ConnectionRefusedError:
                    with contextlib.suppress(OSError):
                        os.unlink(name, dir_fd=self._fd)
                except OSError:
                    continue  # full: its owner will see that it may have missed something

    def listen(self) -> SocketWatch:
        """Raises OSError where sockets cannot be made, as on some network file systems."""
        name = f"{os.getpid()}-{secrets.token_hex(4)}"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        listener.setblocking(False)
        listener.bind(self._address(name))
        return SocketWatch(listener, self._folder / name)

    def close(self) -> None:
        os.close(self._fd)


class SocketWatch:
    """One listener in a SocketFolder."""

    def __init__(self, listener: socket.socket, path: Path) -> None:
        self._listener = listener
        self._path = path

    def fileno(self) -> int:
        return self._listener.fileno()

    def drain(self) -> set[str]:
        heard: set[str] = set()
        messages = 0
        while True:
            try:
                heard.update(self._listener.recv(_LARGEST + 1).decode().split("\n"))
            except BlockingIOError:
                break
            messages += 1
        if messages >= _MAY_HAVE_OVERFLOWED:
            heard.add(ANYTHING)
        return heard

    def wait(self, timeout_s: float | None = None) -> set[str]:
        _readable(self.fileno(), timeout_s)
        return self.drain()

    def close(self) -> None:
        self._path.unlink(missing_ok=True)
        self._listener.close()
