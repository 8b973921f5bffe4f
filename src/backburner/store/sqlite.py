"""The SQLite store: one file in WAL mode, shared by every process of a host."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import shutil
import sqlite3
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

from ..core.files import make_private, read_json, write_json
from ..core.times import Clock, SystemClock
from ..errors import (
    ConfigError,
    StoreBroken,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreGone,
    StoreReadOnly,
    StoreRefused,
    StoreTooNew,
    StoreUnavailable,
)
from .protocol import SqlStore, StoreSize
from .sql.statements import migrations, statements
from .sql.transaction import VALUE_ERRORS, GroupCommit, Job, Transaction, run_jobs
from .watch import PollingWatch, SocketFolder, Watch

T = TypeVar("T")

#: URLs of a store that exists from open to close.
TEMPORARY = ("sqlite://", "sqlite:")

#: How long a write waits for another process by default.
WAIT_S = 10.0
_CHECK_S = 2
_WAL_PAUSE_S = 0.01
#: The write-ahead log is truncated to this when it restarts; it is checkpointed at about this size.
_LARGEST_LOG_BYTES = 8 << 20
#: The free space that a file keeps for the next tasks.
_SPARE_BYTES = 4 << 20


class SqliteStore(SqlStore):
    """Tasks in one SQLite file. `sqlite://` is a file in a temporary folder, deleted by `close`.

    With `synchronous="full"`, every acknowledged write survives a power cut. With `"normal"`, it survives the
    death of any process, but a power cut may lose the last moments.
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
            # Check the version before changing anything in the file, even its journal mode.
            with closing(sqlite3.connect(self.path, timeout=WAIT_S)) as connection:
                connection.execute("BEGIN")  # for a consistent view of the version and the tables
                self._version_of(connection)
        folder = files_folder(self.path)
        try:
            make_private(folder)
            # SQLite gives its other files the mode of this one. An existing file must not be opened here:
            # closing it would release the locks of every other connection of this process.
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            self._write_lock = WriteLock(folder / "write.lock", self.url)
        except OSError as error:
            raise _from_system(self.url, error) from error
        self._readers: deque[sqlite3.Connection] = deque()
        self._sockets = SocketFolder(wake_folder(self.path))
        self._host_clock = HostClock(folder / "clock.json", self.clock)
        # Two processes that create the same file at once disturb each other.
        with self._write_lock() if _file_bytes(self.path) == 0 else contextlib.nullcontext():
            self._writer = self._connect()
        self._writer_is_full = False
        self._group = GroupCommit(self._run_group)
        self._space = FileSpace(self.path, self._connect, self._write_lock)
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
            _use_wal(connection, new=_file_bytes(self.path) == 0)
            connection.execute(f"PRAGMA journal_size_limit = {_LARGEST_LOG_BYTES}")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA wal_autocheckpoint = 2000")
        except BaseException:
            connection.close()
            raise
        return connection

    # -- migrations

    def version(self) -> int:
        return self._reading(lambda reader: _pragma(reader, "user_version"))

    def _version_of(self, connection: sqlite3.Connection) -> int:
        """Return the version of a usable store. Raises StoreTooNew, StoreCorrupt."""
        version, last = _pragma(connection, "user_version"), self._known[-1][0]
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

    # -- reads and writes

    def _read(self, work: Callable[[Transaction], T], snapshot: bool = False) -> T:
        def read(reader: sqlite3.Connection) -> T:
            return work(Transaction(reader, self._statements, self.clock.now_ms()))

        def read_snapshot(reader: sqlite3.Connection) -> T:
            reader.execute("BEGIN")
            try:
                return read(reader)
            finally:
                if reader.in_transaction:  # a disk error ends it
                    reader.execute("COMMIT")

        return self._reading(read_snapshot if snapshot else read)

    def _reading(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` on a pooled reader. A reader that raised an SQLite error is closed."""
        self._check_open()
        try:
            reader = self._readers.pop() if self._readers else self._connect()
        except IndexError:  # another thread was faster
            return self._reading(work)
        except sqlite3.Error as error:
            raise self._as_store_error(error) from error
        try:
            value = work(reader)
        except (sqlite3.Error, *VALUE_ERRORS) as error:
            reader.close()
            raise self._as_store_error(error) from error
        except BaseException:
            self._readers.append(reader)
            raise
        self._readers.append(reader)
        return value

    def _write(self, work: Callable[[Transaction], T], durable: bool = True) -> T:
        self._check_open()
        with self._translate_errors():
            return self._group(work, durable)

    def _run_group(self, jobs: list[Job[Any]]) -> None:
        if self._space.is_tight():  # a log that did not fit into the file before may fit now
            self._space.checkpoint(self._writer)
        self._commit(jobs)
        if self._space.is_tight():
            self._space.checkpoint(self._writer)

    def _commit(self, jobs: list[Job[Any]]) -> None:
        """Run all jobs in one commit, which is synced if one of them is durable."""
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
        """Return device and inode at the store's path: writes to a replaced file would be lost."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def wait_for_writers(self, seconds: float) -> None:
        self._write_lock.wait_s = seconds
        self._writer.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")

    def check_writable(self) -> None:
        with self._translate_errors():
            self._write_lock.check(_CHECK_S)
        super().check_writable()

    def follow_clock(self) -> None:
        jump_ms = self._host_clock.jump_ms()

        def move(tx: Transaction) -> None:
            for statement in ("move_retries", "move_expiry", "move_starts"):
                tx.run(statement, by_ms=jump_ms)
            self._host_clock.save()

        if jump_ms:
            self._write(move)

    # -- disk space

    def size(self) -> StoreSize:
        return self._reading(self._space.size)

    def give_back(self, keep_bytes: int = _SPARE_BYTES) -> int:
        freed, free_bytes = 0, self.size().free_bytes
        with self._translate_errors():
            if free_bytes > keep_bytes:
                freed = self._space.give_back(keep_bytes)
            if not keep_bytes and not freed:
                self._space.truncate_log()
        return freed

    # -- notifications, closing and errors

    def watch(self, *, steering: bool = False) -> Watch:
        self._check_open()
        try:
            return self._sockets.listen(steering=steering)
        except OSError:
            return PollingWatch(self._connect())

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

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, *VALUE_ERRORS) as error:
            raise self._as_store_error(error) from error
        except OSError as error:  # of the lock's file
            raise _from_system(self.url, error) from error

    def _as_store_error(self, error: Exception) -> StoreError:
        return from_sqlite(self.url, self.path, error)


def sqlite_path(url: str) -> Path:
    """Return the file of `sqlite:///relative/or//absolute/path`. Raises ConfigError."""
    prefix = "sqlite:///"
    if not url.startswith(prefix) or len(url) == len(prefix):
        raise ConfigError(setting="store", reason=f"{url!r} names no file; write sqlite:///path/to/file.db")
    return Path(unquote(url[len(prefix) :])).absolute()


def files_folder(path: Path) -> Path:
    """Return the folder of a store's other files: locks, sockets, and by default the files of tasks."""
    return path.with_name(path.name + ".d")


def wake_folder(path: Path) -> Path:
    """Return the folder of a store's notification sockets."""
    return files_folder(path) / "wake"


def _use_wal(connection: sqlite3.Connection, *, new: bool) -> None:
    """Switch to WAL. That writes to a new file, and SQLite's own timeout does not apply to it."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            if new:
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
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
    """Yield the statements of a script. A trigger's body is part of its statement."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    number: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return number


def _file_bytes(path: Path) -> int:
    """Return the size of a file; 0 if it is missing."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


# -- disk space ----------------------------------------------------------------------------------

#: The pages that one step gives back. Writers wait for it, and it goes through the write-ahead log.
_PAGES_AT_ONCE = 512
_PAGES_AT_ONCE_WHEN_TIGHT = 16
_TIGHT_BYTES = 64 << 20
_ROOMY_BYTES, _ROOMY_S = 4 << 30, 0.25


class FileSpace:
    """The disk space of a SQLite file. `lock` keeps other writers out."""

    def __init__(
        self,
        path: Path,
        connect: Callable[[], sqlite3.Connection],
        lock: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._path = path
        self._connect = connect
        self._lock = lock
        self._roomy_until = 0.0

    def size(self, connection: sqlite3.Connection) -> StoreSize:
        log_bytes = _file_bytes(self._path.with_name(self._path.name + "-wal"))
        free_bytes = _pragma(connection, "page_size") * _pragma(connection, "freelist_count")
        return StoreSize(_file_bytes(self._path) + log_bytes, log_bytes, free_bytes)

    def give_back(self, keep_bytes: int) -> int:
        """Remove some free pages from the file. Return their bytes. Raises sqlite3.Error."""
        with self._lock(), closing(self._connect()) as connection:
            page = _pragma(connection, "page_size")
            before = _pragma(connection, "freelist_count")
            most = _PAGES_AT_ONCE_WHEN_TIGHT if self.is_tight() else _PAGES_AT_ONCE
            pages = min(most, before - keep_bytes // page)
            if pages > 0:
                # `executescript`, because `execute` would remove one page only.
                connection.executescript(f"PRAGMA incremental_vacuum({pages})")
                self.checkpoint(connection)
            return page * (before - _pragma(connection, "freelist_count"))

    def is_tight(self) -> bool:
        """Return whether the disk is nearly full. A disk with much space is not checked again at once."""
        now = time.monotonic()
        if now < self._roomy_until:
            return False
        try:
            disk = os.statvfs(self._path.parent)
        except OSError:
            return False
        free_bytes = disk.f_bavail * disk.f_frsize
        if free_bytes > _ROOMY_BYTES:
            self._roomy_until = now + _ROOMY_S
        return free_bytes < _TIGHT_BYTES

    def checkpoint(self, connection: sqlite3.Connection) -> None:
        """Copy as much of the write-ahead log into the file as possible, so that the log does not grow.

        A log that filled the disk could not be copied any more.
        """
        with contextlib.suppress(sqlite3.Error):
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def truncate_log(self) -> None:
        """Copy the write-ahead log into the file and truncate it, unless a reader uses it."""
        with self._lock(), closing(self._connect()) as connection, contextlib.suppress(sqlite3.Error):
            connection.execute("PRAGMA busy_timeout = 0")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


# -- locks ---------------------------------------------------------------------------------------

#: Pauses between two tries of the lock. The first ones are about as long as a commit.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _GROWTH = 0.0001, 0.002, 1.3
#: The byte of a `-shm` file whose lock is SQLite's own write lock in WAL mode.
_WAL_WRITE_BYTE = 120


class WriteLock:
    """An `flock` beside the store; call it for a context that holds the lock.

    It is retried after short pauses, since `flock` has no timeout. SQLite's own lock pauses for milliseconds.
    """

    def __init__(self, path: Path, url: str) -> None:
        """Raises OSError."""
        self._path = path
        self._url = url
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.wait_s = WAIT_S

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Raises StoreBusy when another process holds the lock for longer than `wait_s`."""
        self._take(self._fd, self.wait_s)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def check(self, within_s: float) -> None:
        """Raise StoreBusy if the lock is not free within that time."""
        with self._path.open() as file:  # a new file description, which conflicts with this process's own
            self._take(file.fileno(), within_s)

    def close(self) -> None:
        os.close(self._fd)

    def _take(self, fd: int, within_s: float) -> None:
        deadline: float | None = None
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                now = time.monotonic()
                deadline = now + within_s if deadline is None else deadline
                if now >= deadline:
                    pid = _lock_holder(self._path, "FLOCK")
                    holder = "another process" if pid is None else f"process {pid}"
                    reason = f"{holder} has held its write lock for {within_s:g} s"
                    raise StoreBusy(store=self._url, reason=reason, pid=pid) from None
            time.sleep(pause_s)
            pause_s = min(pause_s * _GROWTH, _LONGEST_PAUSE_S)


def _lock_holder(path: Path, kind: str, byte: int = 0) -> int | None:
    """Return the process with a write lock of this kind on a byte of a file, if /proc/locks shows one."""
    try:
        inode = path.stat().st_ino
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    # A line is `1: FLOCK  ADVISORY  WRITE 4242 08:01:131 0 EOF`. A waiter's has `->` after the number.
    for line in lines:
        match line.split():
            case [_, found, _, "WRITE", pid, file, first, last] if found == kind:
                covers = int(first) <= byte and (last == "EOF" or byte <= int(last))
                if file.rpartition(":")[2] == str(inode) and covers and int(pid) > 0:
                    return int(pid)
    return None


# -- the host's clock ----------------------------------------------------------------------------

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
#: Smaller differences may come from reading two clocks one after the other.
_LEAST_JUMP_MS = 1_000
_READ_WITHIN_MS = 50


class HostClock:
    """Detects that the wall clock was set, from its saved difference to the monotonic clock.

    A reboot starts over, since the monotonic clock does.
    """

    def __init__(self, file: Path, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._difference_ms = 0

    def jump_ms(self) -> int:
        """Return by how much the wall clock was set since the last `save`; 0 if it was not."""
        self._difference_ms = self._measure()
        try:
            saved = read_json(self._file)
        except (ValueError, TypeError):
            saved = {}
        if saved.get("boot") != _boot() or not isinstance(saved.get("apart_ms"), int):
            self.save()
            return 0
        jump_ms: int = self._difference_ms - saved["apart_ms"]
        return jump_ms if abs(jump_ms) >= _LEAST_JUMP_MS else 0

    def save(self) -> None:
        """Save the difference of the last `jump_ms`."""
        write_json(self._file, {"boot": _boot(), "apart_ms": self._difference_ms})

    def _measure(self) -> int:
        while True:
            before = self._clock.uptime_ms()
            now = self._clock.now_ms()
            if self._clock.uptime_ms() - before <= _READ_WITHIN_MS:
                return now - before


def _boot() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


# -- errors --------------------------------------------------------------------------------------

_KINDS: tuple[tuple[tuple[str, ...], type[StoreError]], ...] = (
    (("SQLITE_FULL",), StoreFull),
    (("SQLITE_BUSY", "SQLITE_LOCKED"), StoreBusy),
    (("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_IOERR_SHORT_READ"), StoreCorrupt),
    (("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM"), StoreReadOnly),
    (("SQLITE_IOERR",), StoreBroken),
)
_REFUSALS = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, *VALUE_ERRORS)
_BY_NUMBER: dict[int, type[StoreError]] = {
    errno.ENOSPC: StoreFull,
    errno.EDQUOT: StoreFull,
    errno.EFBIG: StoreFull,
    errno.EIO: StoreBroken,
    errno.EMFILE: StoreUnavailable,
    errno.ENFILE: StoreUnavailable,
    errno.ENOMEM: StoreUnavailable,
}


def _from_system(url: str, error: OSError) -> StoreError:
    return _BY_NUMBER.get(error.errno or 0, StoreReadOnly)(store=url, reason=str(error))


def from_sqlite(url: str, path: Path, error: Exception) -> StoreError:
    """Return the StoreError for an error of SQLite or its driver."""
    if isinstance(error, _REFUSALS) or "binding parameter" in str(error):
        return StoreRefused(store=url, reason=str(error))
    name = getattr(error, "sqlite_errorname", None) or ""
    for names, kind in _KINDS:
        if name.startswith(names):
            if kind in (StoreReadOnly, StoreBroken):
                return _diagnose(url, path) or kind(store=url, reason=str(error))
            shm = path.with_name(path.name + "-shm")
            if kind is StoreBusy and (pid := _lock_holder(shm, "POSIX", _WAL_WRITE_BYTE)) is not None:
                return StoreBusy(store=url, reason=f"{error}; process {pid} is writing to it", pid=pid)
            return kind(store=url, reason=str(error))
    if str(error).startswith("no such table"):  # the first commit of a store creates all tables
        return StoreCorrupt(store=url, reason=str(error))
    return StoreError(store=url, reason=f"{error} {name}".strip())


def _diagnose(url: str, path: Path) -> StoreError | None:
    """Return the error that the state of the files explains, if any."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        if os.statvfs(path.parent).f_flag & os.ST_RDONLY:
            return StoreReadOnly(store=url, reason="its file system is mounted read-only")
    except OSError as error:
        return _from_system(url, error)
    files = [path.with_name(path.name + ending) for ending in ("", "-wal", "-shm")]
    for file in (path.parent, *(file for file in files if file.exists())):
        if not os.access(file, os.W_OK):
            mode = "its permissions do not allow it"
            if os.geteuid() == 0:  # permissions do not apply to root
                mode = "it is immutable (see lsattr; chattr -i ends that)"
            return StoreReadOnly(store=url, reason=f"{file.name} may not be written: {mode}")
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit != resource.RLIM_INFINITY and any(_file_bytes(file) + 8192 > limit for file in files):
        return StoreFull(store=url, reason=f"files may have {limit} bytes at most here (see ulimit -f)")
    return None
