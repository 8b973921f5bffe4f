"""Copy of a SQLite store and its files into another store, for `migrate --to`."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ..app import data_dir
from ..engines.local.lock import SupervisorLock
from ..engines.local.processes import linux
from ..errors import ConfigError, NotCopied, StoreFull, StoreUnavailable
from ..settings import Settings
from ..store import open_store
from ..store.copy import (
    Copied,
    CopiedFiles,
    FolderCopy,
    Progress,
    SqliteTables,
    copy_rows,
    has_tasks,
    open_tables,
)
from ..store.protocol import Store, TaskQuery
from ..store.sqlite import TEMPORARY, sqlite_path


@dataclass(frozen=True, slots=True)
class StoreCopy:
    """The result of a copy. Every row and every file was read back."""

    url: str
    data_dir: Path
    tables: Mapping[str, Copied]
    files: CopiedFiles


def copy_store(store: Store, settings: Settings, folder: Path, to: str, progress: Progress) -> StoreCopy:
    """Copy a SQLite store and the files in `folder` to the URL `to` and the data folder of `settings`.

    A failed copy leaves no task and no file. Writers to the store wait meanwhile, or fail.
    Raises NotCopied, and the errors of opening, reading and writing a store.
    """
    _check_urls(store, to)
    with SqliteTables.open(store.url) as source:
        _check_idle(store, source, folder)
        target, new_folder = _open_target(store.url, settings, to)
        copy, commit_begun = FolderCopy(folder, new_folder), False
        try:
            files = _copy_files(copy, store, progress)
            with open_tables(to) as tables:
                copied = copy_rows(source, tables, progress)
                with _no_interrupt():
                    commit_begun = True
                    tables.commit()
        except BaseException as error:
            # After a connection lost in the commit, the rows may be there.
            if not (commit_begun and isinstance(error, StoreUnavailable)):
                copy.take_back()
            raise
    return StoreCopy(target, new_folder, copied, files)


@contextlib.contextmanager
def _no_interrupt() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _check_urls(store: Store, to: str) -> None:
    if not store.url.startswith("sqlite:"):
        raise NotCopied(
            store=store.url, reason="only SQLite stores can be copied; use `pg_dump` for PostgreSQL"
        )
    if to in TEMPORARY:
        raise ConfigError(setting="--to", reason=f"{to!r} names no file; write sqlite:///path/to/file.db")
    if to.startswith("sqlite:"):
        path = sqlite_path(to)
        if path.exists() and path.samefile(sqlite_path(store.url)):
            raise NotCopied(store=store.url, reason="source and target are the same file; change --to")


def _check_idle(store: Store, source: SqliteTables, folder: Path) -> None:
    """Raise NotCopied for a store in use. `source` blocks writers, so it stays idle after this."""

    def refuse(reason: str) -> NotCopied:
        return NotCopied(store=store.url, reason=reason)

    lock = SupervisorLock(folder)
    holder = lock.holder()
    for one in [*([holder] if holder is not None else []), *lock.retired()]:
        raise refuse(
            f"a supervisor is running (pid {one.get('pid')}). Stop it first: `backburner supervisor stop`"
        )
    if pids := linux.who_has_open(sqlite_path(store.url)):
        who = ", ".join(f"pid {pid}" for pid in pids)
        raise refuse(f"{who} has it open. Stop that program first: its writes would miss the copy")
    with source.translate_errors():
        leased, outside = source.tx.all("held_leases"), source.tx.one("waiting_outside")
    if leased:
        raise refuse(
            f"{len(leased)} of its tasks are leased by workers that are gone. Return them to their queue:"
            " `backburner supervisor restart`, then `backburner supervisor stop --now`"
        )
    if outside is not None:  # the job would later look for its task in the old store
        raise refuse(
            f"{outside['jobs']} of its tasks wait in {outside['engine']}. Let them finish, or cancel them"
        )


def _open_target(source: str, settings: Settings, to: str) -> tuple[str, Path]:
    """Return the URL and the data folder of the new store. Raises NotCopied unless it is empty and idle."""
    with contextlib.closing(open_store(to, synchronous=settings.sqlite.synchronous)) as store:
        if store.page(TaskQuery(limit=1)):
            raise NotCopied(store=source, reason=has_tasks(store.url, sum(store.count_owners().values())))
        alive_after = store.now_ms() - settings.supervisor.lease_grace_s * 1000
        if any(worker.last_heartbeat > alive_after for worker in store.workers()):
            reason = (
                f"a supervisor is running for {store.url}. Stop it on its host: `backburner supervisor stop`"
            )
            raise NotCopied(store=source, reason=reason)
        store.check_writable()
        return store.url, data_dir(replace(settings, store=to), store.url)


def _copy_files(copy: FolderCopy, store: Store, progress: Progress) -> CopiedFiles:
    try:
        return copy.run(progress)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            place = error.filename or os.strerror(error.errno)
            raise StoreFull(store=store.url, reason=f"no space for its files: {place}") from error
        raise NotCopied(store=store.url, reason=f"copying its files failed: {error}") from error
