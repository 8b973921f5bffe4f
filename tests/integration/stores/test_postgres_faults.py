"""PostgreSQL that is restarted or killed under load, is away, or may not be written."""

import contextlib
import threading
from collections.abc import Callable
from urllib.parse import urlsplit

import psycopg
import pytest

from backburner.core.task import Worker
from backburner.core.times import SystemClock
from backburner.errors import ConfigError, StoreError, StoreReadOnly, StoreUnavailable
from backburner.store import open_store
from backburner.store.protocol import ANYTHING, Store, TaskQuery
from backburner.testing import FakeClock
from tests.contracts.store.base import new_task
from tests.integration.engine.partition import Partition
from tests.services import PostgresServer, wait_until

CLOCK = SystemClock()


def submit(store: Store) -> str:
    return store.submit(new_task(CLOCK)).task.task_id


class Load:
    """Threads that submit and read without end, and note what was acknowledged and what went wrong."""

    def __init__(self, store: Store, threads: int = 4) -> None:
        self._store = store
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(threads)]
        self.acknowledged: list[str] = []
        self.errors: list[Exception] = []

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                task_id = submit(self._store)
                self.acknowledged.append(task_id)
                assert self._store.get(task_id).task_id == task_id
            except Exception as error:
                self.errors.append(error)

    def goes_on(self) -> bool:
        """Whether more is acknowledged from now on."""
        count = len(self.acknowledged)
        return wait_until(lambda: len(self.acknowledged) >= count + 20)


def power_cut(server: PostgresServer) -> None:
    server.kill()
    server.start()


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize("fault", [PostgresServer.restart, power_cut], ids=["restart", "kill"])
def test_a_restart_under_load_loses_nothing_and_the_work_goes_on(
    postgres_server: PostgresServer, fault: Callable[[PostgresServer], None]
) -> None:
    store = open_store(postgres_server.url)
    watch = store.watch()
    try:
        with Load(store) as load:
            assert load.goes_on()
            for _ in range(2):
                fault(postgres_server)
                assert load.goes_on()
        assert [error for error in load.errors if not isinstance(error, StoreError)] == []
        kept: set[str] = set()
        before = None
        while page := store.page(TaskQuery(before_seq=before, limit=500)):
            kept.update(task.task_id for task in page)
            before = page[-1].seq
        assert set(load.acknowledged) <= kept
        while watch.wait(0.5):
            pass
        last = submit(store)
        heard = set[str]()
        while not {ANYTHING, f"task:{last}"} & heard:
            heard |= watch.wait(20)
            assert heard, "the watch did not come back"
    finally:
        watch.close()
        store.close()


@pytest.mark.whole
def test_a_server_that_is_away_is_a_clear_error_until_it_is_back(postgres_server: PostgresServer) -> None:
    store = open_store(postgres_server.url)
    try:
        kept = submit(store)
        postgres_server.stop()
        with pytest.raises(StoreUnavailable, match="try again shortly"):
            submit(store)
        with pytest.raises(StoreUnavailable):
            store.get(kept)
        with pytest.raises(StoreUnavailable):
            open_store(postgres_server.url)
        postgres_server.start()
        assert submit(store) != kept
        assert store.get(kept).task_id == kept
    finally:
        store.close()


@pytest.mark.whole
def test_a_connection_that_lets_nothing_through_is_a_clear_error_until_it_does(
    postgres_database: str,
) -> None:
    way = Partition(postgres_database)
    store = open_store(way.url)
    try:
        task_id = submit(store)
        way.freeze()
        for ask in (lambda: submit(store), lambda: store.get(task_id)):
            with pytest.raises(StoreUnavailable):
                ask()
        way.mend()
        assert store.get(task_id).task_id == task_id
        assert store.get(submit(store)).attempt == 0
    finally:
        way.mend()
        store.close()
        way.close()


@pytest.mark.whole
def test_a_client_that_falls_silent_in_the_middle_of_a_write_does_not_hold_others_up(
    postgres_database: str,
) -> None:
    way = Partition(postgres_database)
    silent, other = open_store(way.url), open_store(postgres_database)
    # So many that they are being written at any moment.
    workers = [Worker(f"w{number:03d}", "s", "h", "q", "idle", 0, 0) for number in range(500)]
    heartbeats: list[object] = []

    def beat_on() -> None:
        with contextlib.suppress(StoreUnavailable):
            while True:
                heartbeats.append(silent.heartbeat([], workers))

    def arrives() -> bool:
        with contextlib.suppress(StoreUnavailable):
            other.keep("other", lease_s=1)
            other.heartbeat([], workers)
            return True
        return False

    writer = threading.Thread(target=beat_on)
    writer.start()
    try:
        assert wait_until(lambda: len(heartbeats) > 2)
        way.freeze()
        assert wait_until(arrives, within=60)
    finally:
        writer.join()
        way.mend()
        for store in (silent, other):
            store.close()
        way.close()


def test_the_times_of_a_store_are_the_database_s_whatever_the_host_s_clock_says(
    postgres_database: str,
) -> None:
    host = FakeClock(now_ms=CLOCK.now_ms() - 7_200_000)
    store = open_store(postgres_database)
    try:
        task = store.submit(new_task(host, ttl_s=60)).task
        assert abs(task.submitted_at - CLOCK.now_ms()) < 60_000
        assert task.expires_at == task.submitted_at + 60_000
        assert store.expire() == []
    finally:
        store.close()


def test_a_database_that_may_not_be_written_is_a_clear_error_and_can_still_be_read(
    postgres_database: str,
) -> None:
    store = open_store(postgres_database)
    kept = submit(store)
    store.close()

    def set_read_only(how: str) -> None:
        name = urlsplit(postgres_database).path[1:]
        with psycopg.connect(postgres_database, autocommit=True) as connection:
            connection.execute("SET default_transaction_read_only = off")
            connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = {how}".encode())

    set_read_only("on")
    store = open_store(postgres_database)
    try:
        with pytest.raises(StoreReadOnly):
            submit(store)
        assert store.get(kept).task_id == kept
    finally:
        store.close()
    set_read_only("off")
    store = open_store(postgres_database)
    try:
        submit(store)
    finally:
        store.close()


def test_a_closed_store_says_so(postgres_database: str) -> None:
    store = open_store(postgres_database)
    store.close()
    with pytest.raises(StoreUnavailable):
        submit(store)
    with pytest.raises(StoreUnavailable):
        store.page(TaskQuery())


def test_a_wrong_password_is_a_clear_error_that_does_not_tell_it() -> None:
    with pytest.raises(StoreUnavailable) as refused:
        open_store("postgresql://ann:sesame@127.0.0.1:1/none")
    assert "sesame" not in str(refused.value)
    assert "postgresql://ann@127.0.0.1:1/none" in str(refused.value)


def test_an_address_that_makes_no_sense_is_a_config_error() -> None:
    with pytest.raises(ConfigError):
        open_store("postgresql://host/database?colour=red")
