"""Moving a SQLite store: all that it holds goes into an empty store, with its files; it is left as it is."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from .app import data_dir
from .config import Settings
from .engines.local import linux
from .engines.local.supervisor_lock import SupervisorLock
from .errors import ConfigError, NotCopied, StoreFull, StoreUnavailable
from .file_copy import CopiedFiles, FolderCopy
from .store import Store, TaskQuery
from .stores import open_store
from .stores.copying import Copied, Progress, SqliteTables, copy_rows, has_tasks, open_tables
from .stores.sqlite import TEMPORARY, sqlite_path


@dataclass(frozen=True, slots=True)
class Moved:
    """What is in both stores now. Every row and every file was read back."""

    url: str
    data_dir: Path
    tables: Mapping[str, Copied]
    files: CopiedFiles


def move(store: Store, settings: Settings, folder: Path, to: str, progress: Progress) -> Moved:
    """Copy a SQLite store, whose files are in `folder`, to the URL `to`; its files to where `settings` say.

    All of it is there afterwards, or no task and no file. Others who write to the store wait meanwhile, or
    are refused. Raises NotCopied, and what opening, reading and writing a store raise.
    """
    _refuse_other_kinds(store, to)
    with SqliteTables.open(store.url) as source:
        _refuse_if_in_use(store, source, folder)
        target, new_folder = _prepared(store.url, settings, to)
        copy, begun = FolderCopy(folder, new_folder), False
        try:
            files = _copy_files(copy, store, progress)
            with open_tables(to) as tables:
                copied = copy_rows(source, tables, progress)
                with _uninterrupted():
                    begun = True
                    tables.commit()
        except BaseException as error:
            # Who loses the connection in a commit cannot know whether the tasks are there.
            if not (begun and isinstance(error, StoreUnavailable)):
                copy.take_back()
            raise
    return Moved(target, new_folder, copied, files)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C comes too late here: it would leave open what became of the commit."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _refuse_other_kinds(store: Store, to: str) -> None:
    if not store.url.startswith("sqlite:"):
        reason = "only a SQLite store is copied so; PostgreSQL has `pg_dump` for it"
        raise NotCopied(store=store.url, reason=reason)
    if to in TEMPORARY:
        raise ConfigError(setting="--to", reason=f"{to!r} names no file; write sqlite:///path/to/file.db")
    if to.startswith("sqlite:"):
        path = sqlite_path(to)
        if path.exists() and path.samefile(sqlite_path(store.url)):
            raise NotCopied(store=store.url, reason="that would be into itself; name another file with --to")


def _refuse_if_in_use(store: Store, source: SqliteTables, folder: Path) -> None:
    """Nobody can lease a task, or submit one, from here on: the source is closed to writing."""
    lock = SupervisorLock(folder)
    holder = lock.holder()
    for each in [*([holder] if holder is not None else []), *lock.retired()]:
        reason = f"a supervisor works on it (pid {each.get('pid')}). Stop it first: `backburner stop`"
        raise NotCopied(store=store.url, reason=reason)
    if pids := linux.who_has_open(sqlite_path(store.url)):
        who = ", ".join(f"pid {pid}" for pid in pids)
        reason = f"{who} has it open. End that program first: what it writes would be in the old store alone"
        raise NotCopied(store=store.url, reason=reason)
    with source.telling_errors():
        leased, outside = source.tx.all("leases"), source.tx.one("waiting_outside")
    if leased:
        advice = "Have them taken up and handed back: `backburner restart`, then `backburner stop --now`"
        reason = f"{len(leased)} of its tasks are under way, though nobody works on them. {advice}"
        raise NotCopied(store=store.url, reason=reason)
    if outside is not None:  # what is started there later would look for its task in the old store
        reason = f"{outside['jobs']} of its tasks wait with {outside['engine']}. Let them end, or cancel them"
        raise NotCopied(store=store.url, reason=reason)


def _prepared(source: str, settings: Settings, to: str) -> tuple[str, Path]:
    """The URL and the data folder of the new store, which is made, or found to be empty and idle."""
    with contextlib.closing(open_store(to, synchronous=settings.sqlite.synchronous)) as store:
        if store.page(TaskQuery(limit=1)):
            raise NotCopied(store=source, reason=has_tasks(store.url, sum(store.count_owners().values())))
        heard_after = store.now_ms() - settings.supervisor.lease_grace_s * 1000
        if any(worker.last_heartbeat > heard_after for worker in store.workers()):
            reason = f"a supervisor works on {store.url} already. Stop it where it runs: `backburner stop`"
            raise NotCopied(store=source, reason=reason)
        store.check_writable()
        return store.url, data_dir(replace(settings, store=to), store.url)


def _copy_files(copy: FolderCopy, store: Store, progress: Progress) -> CopiedFiles:
    try:
        return copy.run(progress)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            place = error.filename or os.strerror(error.errno)
            raise StoreFull(store=store.url, reason=f"its files do not fit: {place}") from error
        reason = f"of its files: {error}"
        raise NotCopied(store=store.url, reason=reason) from error
