"""SQLite on a full disk, with a file that is read-only, locked or damaged, and with its process killed."""

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backburner.core.times import SystemClock
from backburner.errors import (
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreGone,
    StoreReadOnly,
    StoreUnavailable,
)
from backburner.store import open_store
from backburner.store.protocol import Store, TaskQuery
from tests.contracts.processes import Start, running
from tests.contracts.store.base import new_task
from tests.integration.stores.small_disks import small_disk_in
from tests.whole import WHOLE

CLOCK = SystemClock()


def submit(store: Store, size: int = 0) -> str:
    return store.submit(new_task(CLOCK, {"filler": "x" * size})).task.task_id


def submit_without_end(store: Store, acknowledged: list[str]) -> None:
    while True:
        acknowledged.append(submit(store, 20_000))


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/tasks.db"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = open_store(url)
    yield store
    store.close()


# -- a full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk_in(tmp_path, megabytes=2) as disk:
        yield disk


def test_a_full_disk_is_a_clear_error_loses_nothing_and_is_over_when_there_is_space(small_disk: Path) -> None:
    filler = small_disk / "filler"
    store = open_store(f"sqlite:///{small_disk}/tasks.db")
    try:
        filler.write_bytes(bytes(1_000_000))
        acknowledged: list[str] = []
        with pytest.raises(StoreFull, match="Free some disk space"):
            submit_without_end(store, acknowledged)
        assert acknowledged
        listed = {task.task_id for task in store.page(TaskQuery(limit=500))}
        assert listed == set(acknowledged)
        filler.unlink()
        acknowledged.append(submit(store))
    finally:
        store.close()
    reopened = open_store(f"sqlite:///{small_disk}/tasks.db")
    try:
        assert {task.task_id for task in reopened.page(TaskQuery(limit=500))} == set(acknowledged)
    finally:
        reopened.close()


def submit_within_a_file_size(start: Start, url: str, limit: int) -> list[list[str] | str]:
    """In another process: submit until files may grow no more, and once again when they may."""
    import resource

    store = open_store(url)
    start()
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    acknowledged: list[str] = []
    try:
        submit_without_end(store, acknowledged)
    except StoreError as error:
        code = error.code
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    acknowledged.append(submit(store))
    store.close()
    return [acknowledged, code]


def test_a_file_that_may_not_grow_is_a_clear_error_and_loses_nothing(store: Store, url: str) -> None:
    with running(submit_within_a_file_size, (url, 1_000_000)) as (process,):
        acknowledged, code = process.value()
    assert code == StoreFull.code
    assert {task.task_id for task in store.page(TaskQuery(limit=500))} == set(acknowledged)


# -- a file that cannot be written


def open_as_nobody(start: Start, url: str) -> str:
    open_store("sqlite://").close()  # so that nothing needs to be imported as nobody
    os.setgroups([])
    os.setuid(65534)
    start()
    try:
        open_store(url).close()
    except StoreError as error:
        return error.code
    return "opened"


def test_a_file_that_may_not_be_written_is_a_clear_error() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    with tempfile.TemporaryDirectory() as folder:  # not pytest's, which lets nobody in
        Path(folder).chmod(0o755)
        url = f"sqlite:///{folder}/tasks.db"
        open_store(url).close()
        with running(open_as_nobody, (url,)) as (process,):
            assert process.value() == StoreReadOnly.code


def test_a_path_that_is_a_folder_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StoreReadOnly):
        open_store(f"sqlite:///{tmp_path}")


def test_a_store_that_becomes_read_only_is_a_clear_error_and_works_again_afterwards(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a file system")
    try:
        store = open_store(f"sqlite:///{folder}/tasks.db")
        kept = submit(store)
        store.close()
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        with pytest.raises(StoreReadOnly):
            open_store(f"sqlite:///{folder}/tasks.db")
        subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)
        store = open_store(f"sqlite:///{folder}/tasks.db")
        assert store.get(kept).task_id == kept
        submit(store)
        store.close()
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("file", ["tasks.db", "tasks.db-wal"])
def test_an_immutable_file_is_called_so(url: str, tmp_path: Path, file: str) -> None:
    """On a disk, since a file system in memory knows no such files."""
    first = open_store(url)
    submit(first)  # so that there is a journal
    if subprocess.run(["chattr", "+i", tmp_path / file], capture_output=True, check=False).returncode:
        first.close()
        pytest.skip("only root can make a file immutable, and not on every file system")
    second = open_store(url)
    try:
        with pytest.raises(StoreReadOnly, match=f"{file} may not be written: it is immutable"):
            submit(second)
    finally:
        subprocess.run(["chattr", "-i", tmp_path / file], check=True)
        second.close()
        first.close()


def open_without_descriptors(start: Start, url: str) -> list[str]:
    """In another process: use the store and open it again, with no file descriptor left."""
    import resource

    store = open_store(url)
    start()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    taken: list[int] = []
    with contextlib.suppress(OSError):
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    task_id = submit(store)
    try:
        open_store(url)
    except StoreError as error:
        code = error.code
    for fd in taken:
        os.close(fd)
    store.close()
    return [task_id, code]


def test_a_process_without_descriptors_can_use_its_store_and_is_told_why_it_opens_no_other(
    store: Store, url: str
) -> None:
    with running(open_without_descriptors, (url,)) as (process,):
        task_id, code = process.value()
    assert store.head(task_id).task_id == task_id
    assert code == StoreUnavailable.code


# -- a file that another program holds


@pytest.mark.whole
@pytest.mark.slow
def test_a_store_locked_by_another_program_is_a_clear_error_and_can_still_be_read(
    store: Store, tmp_path: Path
) -> None:
    kept = submit(store)
    other = sqlite3.connect(tmp_path / "tasks.db", isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy):
            submit(store)
        assert store.get(kept).task_id == kept
        other.execute("ROLLBACK")
        submit(store)
    finally:
        other.close()
    assert len(store.page(TaskQuery())) == 2


# -- a file that is damaged


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "letter.db"
    path.write_bytes(b"Dear reader, " * 1000)
    with pytest.raises(StoreCorrupt) as refused:
        open_store(f"sqlite:///{path}")
    assert "Restore a backup" in str(refused.value)
    assert path.read_bytes() == b"Dear reader, " * 1000


def test_a_damaged_page_is_a_clear_error(url: str, tmp_path: Path) -> None:
    store = open_store(url)
    ids = [submit(store, 1000) for _ in range(50)]
    store.close()
    path = tmp_path / "tasks.db"
    content = path.read_bytes()
    path.write_bytes(content[:8192] + b"\xff" * (len(content) - 8192))
    with pytest.raises(StoreCorrupt):
        open_and_read(url, ids)


def open_and_read(url: str, ids: list[str]) -> None:
    store = open_store(url)
    try:
        for task_id in ids:
            store.get(task_id)
    finally:
        store.close()


@pytest.mark.parametrize("kept", [0, 0.5])
def test_a_truncated_journal_is_a_clear_error(url: str, tmp_path: Path, kept: float) -> None:
    store = open_store(url)
    ids = [submit(store, 1000) for _ in range(50)]
    journal = tmp_path / "tasks.db-wal"
    os.truncate(journal, int(journal.stat().st_size * kept))
    reads: list[Callable[[], object]] = [
        lambda: [store.get(task_id) for task_id in ids],
        lambda: [store.head(task_id) for task_id in ids],
        lambda: store.page(TaskQuery(limit=500)),
        lambda: [store.events(task_id) for task_id in ids],
    ]
    try:
        for read in reads:
            with pytest.raises(StoreCorrupt):
                read()
        with pytest.raises(StoreCorrupt):
            open_store(url)
    finally:
        store.close()


def test_a_closed_store_says_so(url: str) -> None:
    store = open_store(url)
    store.close()
    with pytest.raises(StoreUnavailable):
        submit(store)
    with pytest.raises(StoreUnavailable):
        store.page(TaskQuery())


def test_its_files_are_for_their_owner_only(store: Store, tmp_path: Path) -> None:
    submit(store)
    store.watch().close()
    for path in tmp_path.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_temporary_store_leaves_nothing(tmp_path: Path) -> None:
    program = "from backburner.store import open_store; s = open_store('sqlite://'); print(s.url); s.close()"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    said = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert said.stdout.startswith(f"sqlite:///{tmp_path}/")
    assert list(tmp_path.iterdir()) == []


# -- a store that is opened more than once


def ids_seen_elsewhere(start: Start, url: str) -> list[str]:
    """In another process: open the store, read, and close it again."""
    store = open_store(url)
    start()
    found = [task.task_id for task in store.page(TaskQuery(limit=500))]
    store.close()
    return found


def test_a_store_opened_twice_in_a_process_loses_nothing_when_another_process_closes_it(url: str) -> None:
    stores = [open_store(url), open_store(url)]
    try:
        acknowledged = [submit(store) for store in stores]
        for _ in range(2):
            with running(ids_seen_elsewhere, (url,)) as (process,):
                assert sorted(process.value()) == sorted(acknowledged)
            acknowledged += [submit(store) for store in stores]
    finally:
        for store in stores:
            store.close()
    with running(ids_seen_elsewhere, (url,)) as (process,):
        assert sorted(process.value()) == sorted(acknowledged)


# -- kill -9

_SUBMITTER = """
import os, sys, time
from concurrent.futures import ThreadPoolExecutor
from backburner.store import open_store
from backburner.core.task import NewTask
from backburner.core.task import new_task_id
from tests.integration.stores.small_disks import small_disk_in

store = open_store(sys.argv[1])

def submit(_):
    now = time.time_ns() // 1_000_000
    task_id = new_task_id(now)
    plain = {"task_id": task_id, "owner": "ann", "tool_name": "relax", "queue": "q", "submitted_at": now}
    filler = '{"filler": "' + 500 * "x" + '"}'
    store.submit(NewTask(**plain, inputs_json=filler, inputs_hash="hash"))
    os.write(1, f"{task_id}\\n".encode())

with ThreadPoolExecutor(4) as threads:
    for _ in threads.map(submit, range(100_000)):
        pass
"""


@pytest.mark.slow
def test_what_was_acknowledged_survives_kills_at_random_moments(url: str) -> None:
    chance = random.Random(os.environ.get("PYTEST_SEED", "50"))
    acknowledged: set[str] = set()
    for _ in range(50 if WHOLE else 10):
        process = subprocess.Popen(
            [sys.executable, "-c", _SUBMITTER, url], stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert process.stdout is not None
        with process.stdout as said:
            before = [said.readline().strip() for _ in range(chance.randrange(1, 60))]
            process.send_signal(signal.SIGKILL)
            acknowledged.update(before, said.read().split())
        process.wait()
    store = open_store(url)
    try:
        kept: set[str] = set()
        before_seq = None
        while page := store.page(TaskQuery(before_seq=before_seq, limit=500)):
            kept.update(task.task_id for task in page)
            before_seq = page[-1].seq
        assert len(acknowledged) >= 10
        assert acknowledged <= kept
        (depth,) = store.queue_depths()
        assert depth.queued == len(kept)
    finally:
        store.close()


# -- a file that goes away


@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_is_acknowledged_once_the_file_was_removed_or_replaced(
    store: Store, tmp_path: Path, replaced: bool
) -> None:
    submit(store)
    (tmp_path / "tasks.db").unlink()
    if replaced:
        (tmp_path / "tasks.db").touch()
    with pytest.raises(StoreGone, match="Start what uses it again"):
        submit(store)
