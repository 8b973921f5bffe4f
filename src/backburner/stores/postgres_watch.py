"""Hearing of changes by LISTEN and NOTIFY: the reader waits on the connection itself."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Callable
from typing import Any

import psycopg

from ..watch import ANYTHING

#: All that changes, and what is for the holders of tasks alone.
CHANNEL, STEERING_CHANNEL = "backburner", "backburner_steering"
_PAUSE_S = 0.2

_Connection = psycopg.Connection[Any]


class ListeningWatch:
    """A connection that listens. Its `fileno` stays the same when the connection is made anew.

    That is done by a thread, which there is only as long as the server cannot be reached; afterwards
    anything may have changed.
    """

    def __init__(self, connect: Callable[[], _Connection], channel: str = CHANNEL) -> None:
        """Raises psycopg.Error."""
        self._connect = connect
        self._channel = channel
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._connection: _Connection | None = self._listening()
        self._back = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.epoll()
        self._poll.register(self._back, select.EPOLLIN)
        self._poll.register(self._connection.fileno(), select.EPOLLIN)

    def _listening(self) -> _Connection:
        connection = self._connect()
        try:
            connection.execute(f"LISTEN {self._channel}")
        except BaseException:
            connection.close()
            raise
        return connection

    def fileno(self) -> int:
        return self._poll.fileno()

    def drain(self) -> set[str]:
        heard: set[str] = set()
        with self._lock:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._back)
                heard.add(ANYTHING)
            if self._connection is None:
                return heard
            libpq = self._connection.pgconn
            try:
                libpq.consume_input()
                while (notice := libpq.notifies()) is not None:
                    heard.update(notice.extra.decode().split("\n"))
            except psycopg.Error:
                self._make_anew(self._connection)
        return heard

    def _make_anew(self, lost: _Connection) -> None:
        lost.close()  # which takes it out of the poll as well
        self._connection = None
        self._thread = threading.Thread(target=self._reconnect, name="backburner-listen", daemon=True)
        self._thread.start()

    def _reconnect(self) -> None:
        while not self._over.is_set():
            try:
                connection = self._listening()
            except psycopg.Error:
                self._over.wait(_PAUSE_S)
                continue
            with self._lock:
                self._connection = connection
                self._poll.register(connection.fileno(), select.EPOLLIN)
                os.eventfd_write(self._back, 1)
            return

    def wait(self, timeout_s: float | None = None) -> set[str]:
        self._poll.poll(None if timeout_s is None else max(0, timeout_s))
        return self.drain()

    def mend(self) -> None:
        """Who reads sees that the connection is lost, and has it made anew."""

    def close(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            if self._connection is not None:
                self._connection.close()
        self._poll.close()
        os.close(self._back)
