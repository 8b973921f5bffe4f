"""The SQLite store: one file in WAL mode, shared by every process of a host."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

from ..clock import Clock, SystemClock
from ..errors import (
    ConfigError,
    StoreCorrupt,
    StoreError,
    StoreGone,
    StoreTooNew,
    StoreUnavailable,
)
from ..folders import make_private
from ..store import StoreSize
from ..watch import Watch
from . import sqlite_space
from .host_clock import HostClock
from .sql_store import SqlStore
from .sqlite_errors import from_sqlite, from_system
from .statements import migrations, statements
from .transaction import UNFIT, GroupCommit, Job, Transaction, run_jobs
from .watches import SocketFolder, polling_watch
from .write_lock import WAIT_S, WriteLock

T = TypeVar("T")

#: URLs of a store that is made when it is opened, and gone when it is closed.
TEMPORARY = ("sqlite://", "sqlite:")

_CHECK_S = 2
_WAL_PAUSE_S = 0.01


class SqliteStore(SqlStore):
    """Tasks in one SQLite file. `sqlite://` is a file in a temporary folder, gone when the store is closed.

    `synchronous="full"` makes every acknowledged write survive a power cut; `"normal"` survives
    the death of any process but may lose the last moments before a power cut.
    """

    shared = False

    def __init__(self, url: str, *, clock: Clock | None = None, synchronous: str = "full") -> None:
        if synchronous not in ("full", "normal"):
            raise ConfigError(
                setting="sqlite.synchronous", reason=f"{synchronous!r} is neither 'full' nor 'normal'"
            )
        self.clock = clock or SystemClock()
        self._temporary = tempfile.mkdtemp(prefix="backburner-") if url in TEMPORARY else None
        self.path = Path(self._temporary, "tasks.db") if self._temporary else sqlite_path(url)
        self.url = f"sqlite:///{self.path}"
        self._durable = synchronous == "full"
        self._statements = statements("sqlite")
        self._closed = False
        try:
            self._open()
        except sqlite3.Error as error:
            self.close()
            raise self._as_store_error(error) from error
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        self._known = migrations("sqlite")
        if self.path.is_file():
            self._refuse_strangers()
        folder = files_folder(self.path)
        try:
            make_private(folder)
            # SQLite gives its other files the mode of this one. A file that is there must not be opened here:
            # closing it would take away the locks of every other connection of this process.
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            self._write_lock = WriteLock(folder / "write.lock", self.url)
        except OSError as error:
            raise from_system(self.url, error) from error
        self._readers: deque[sqlite3.Connection] = deque()
        self._sockets = SocketFolder(wake_folder(self.path))
        self._host_clock = HostClock(folder / "clock.json", self.clock)
        # Two processes that make one file at the same moment disturb each other.
        with self._write_lock() if sqlite_space.file_bytes(self.path) == 0 else contextlib.nullcontext():
            self._writer = self._connect()
        self._writer_is_full = False
        self._group = GroupCommit(self._run_group)
        self._space = sqlite_space.FileSpace(self.path, self.url, self._connect, self._write_lock)
        self._file = self._identity()
        self._migrate()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path,
            timeout=WAIT_S,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            connection.row_factory = sqlite3.Row
            _use_wal(connection, new=sqlite_space.file_bytes(self.path) == 0)
            connection.execute(f"PRAGMA journal_size_limit = {sqlite_space.LARGEST_LOG_BYTES}")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA wal_autocheckpoint = 2000")
        except BaseException:
            connection.close()
            raise
        return connection

    # -- migrations

    def version(self) -> int:
        number: int = self._reading(lambda reader: reader.execute("PRAGMA user_version").fetchone()[0])
        return number

    def _refuse_strangers(self) -> None:
        """Look at a file before anything in it is changed, even its journal mode."""
        with contextlib.closing(sqlite3.connect(self.path, timeout=WAIT_S)) as connection:
            connection.execute("BEGIN")  # its version and its tables, as of one moment
            self._version_of(connection)

    def _version_of(self, connection: sqlite3.Connection) -> int:
        """The version of a store that this Backburner can use. Raises StoreTooNew, StoreCorrupt."""
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
        last = self._known[-1][0]
        if version > last:
            raise StoreTooNew(store=self.url, found=version, known=last)
        if version == 0 and connection.execute("SELECT 1 FROM sqlite_master").fetchone():
            raise StoreCorrupt(store=self.url, reason="it holds tables that are not Backburner's")
        return version

    def _migrate(self) -> None:
        if self.version() == self._known[-1][0]:
            return
        with self._write_lock(), _immediate(self._writer):
            version = self._version_of(self._writer)
            for number, _, script in self._known[version:]:
                for statement in _split(script):
                    self._writer.execute(statement)
                self._writer.execute(f"PRAGMA user_version = {number}")

    def secret(self) -> bytes:
        key: bytes = self._reading(
            lambda reader: reader.execute("SELECT secret FROM store_secret").fetchone()[0]
        )
        return key

    # -- reading and writing

    def _read(self, work: Callable[[Transaction], T], snapshot: bool = False) -> T:
        def read(reader: sqlite3.Connection) -> T:
            return work(Transaction(reader, self._statements, self.clock.now_ms()))

        def read_snapshot(reader: sqlite3.Connection) -> T:
            reader.execute("BEGIN")
            try:
                return read(reader)
            finally:
                if reader.in_transaction:  # an error of the disk's ends it
                    reader.execute("COMMIT")

        return self._reading(read_snapshot if snapshot else read)

    def _reading(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` on a reader of the pool; a reader that met an error is not used again."""
        self._check_open()
        reader = self._reader()
        try:
            value = work(reader)
        except (sqlite3.Error, *UNFIT) as error:
            reader.close()
            raise self._as_store_error(error) from error
        except BaseException:
            self._readers.append(reader)
            raise
        self._readers.append(reader)
        return value

    def _reader(self) -> sqlite3.Connection:
        try:
            return self._readers.pop()
        except IndexError:
            pass
        try:
            return self._connect()
        except sqlite3.Error as error:
            raise self._as_store_error(error) from error

    def _write(self, work: Callable[[Transaction], T], durable: bool = True) -> T:
        self._check_open()
        with self._telling_errors():
            return self._group(work, durable)

    def _run_group(self, jobs: list[Job[Any]]) -> None:
        self._commit(jobs)
        if self._space.is_tight():
            self._space.copy_log(self._writer)

    def _commit(self, jobs: list[Job[Any]]) -> None:
        """All jobs in one commit, on disk if one of them must be."""
        full = self._durable and any(job.durable for job in jobs)
        if full != self._writer_is_full:
            self._writer.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
            self._writer_is_full = full
        tx = Transaction(self._writer, self._statements, self.clock.now_ms())
        with self._write_lock(), _immediate(self._writer):
            if self._identity() != self._file:
                raise StoreGone(store=self.url)
            run_jobs(tx, jobs)
        if tx.topics:
            self._sockets.announce(tx.topics, tx.known)

    def _identity(self) -> tuple[int, int] | None:
        """Which file is at the store's path: what is written to another one would be lost."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def wait_for_writers(self, seconds: float) -> None:
        self._write_lock.wait_s = seconds
        self._writer.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")

    def check_writable(self) -> None:
        with self._telling_errors():
            self._write_lock.check(_CHECK_S)
        super().check_writable()

    def follow_clock(self) -> None:
        jump_ms = self._host_clock.look()

        def move(tx: Transaction) -> None:
            tx.run("move_retries", by_ms=jump_ms)
            tx.run("move_expiry", by_ms=jump_ms)
            tx.run("move_starts", by_ms=jump_ms)
            self._host_clock.remember()

        if jump_ms:
            self._write(move)

    # -- the room that it takes

    def size(self) -> StoreSize:
        return self._reading(self._space.size)

    def give_back(self, keep_bytes: int = sqlite_space.SPARE_BYTES) -> int:
        now, freed = self.size(), 0
        with self._telling_errors():
            if now.gives_back and now.free_bytes > keep_bytes:
                freed = self._space.give_back(keep_bytes)
            if not keep_bytes and not freed:
                self._space.empty_log()
        return freed

    def compact(self) -> None:
        self._check_open()
        with self._telling_errors():
            self._space.rewrite()

    @contextlib.contextmanager
    def _telling_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, *UNFIT) as error:
            raise self._as_store_error(error) from error
        except OSError as error:  # of the lock's file
            raise from_system(self.url, error) from error

    # -- waking up

    def watch(self, *, steering: bool = False) -> Watch:
        self._check_open()
        try:
            return self._sockets.listen(steering=steering)
        except OSError:
            return polling_watch(self._connect())

    # -- ending, and errors

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if hasattr(self, "_writer"):
            self._writer.close()
            while self._readers:
                self._readers.pop().close()
        if hasattr(self, "_sockets"):
            self._sockets.close()
        if hasattr(self, "_write_lock"):
            self._write_lock.close()
        if self._temporary:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable(store=self.url, reason="it was closed")

    def _as_store_error(self, error: Exception) -> StoreError:
        return from_sqlite(self.url, self.path, error)


def sqlite_path(url: str) -> Path:
    """The file behind `sqlite:///relative/or//absolute/path`. Raises ConfigError."""
    prefix = "sqlite:///"
    if not url.startswith(prefix) or len(url) == len(prefix):
        raise ConfigError(setting="store", reason=f"{url!r} names no file; write sqlite:///path/to/file.db")
    return Path(unquote(url[len(prefix) :])).absolute()


def files_folder(path: Path) -> Path:
    """Where the files that belong to a SQLite store are: locks, sockets, and by default the tasks' own."""
    return path.with_name(path.name + ".d")


def wake_folder(path: Path) -> Path:
    """Where the sockets are by which the processes that use a SQLite store wake each other."""
    return files_folder(path) / "wake"


def _use_wal(connection: sqlite3.Connection, *, new: bool) -> None:
    """In a new file it is a change of the file, for which SQLite does not wait while others open it too."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            if new:
                sqlite_space.let_give_back(connection)
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(_WAL_PAUSE_S)


@contextlib.contextmanager
def _immediate(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _split(script: str) -> Iterator[str]:
    """The statements of a script; a trigger's body is part of its statement."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
