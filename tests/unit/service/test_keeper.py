"""The keeper's rounds."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from backburner.core.lifecycle import State
from backburner.core.reports import Failed, Logged, Started, Succeeded
from backburner.core.task import LogLine, TaskError
from backburner.engines.keeper import Keeper, Swept
from backburner.service.tasks import TaskService
from backburner.settings import RetentionSettings, Settings, SupervisorSettings
from backburner.store import open_store
from backburner.store.artifacts.folder import OwnFolder
from backburner.store.protocol import Store
from backburner.testing import FakeClock
from tests.contracts.store.base import TWICE_MORE, new_task
from tests.unit.service.conftest import Worker


@pytest.fixture
def settings(store_url: str) -> Settings:
    return Settings(
        store=store_url,
        supervisor=SupervisorSettings(lease_grace_s=30.0, keeper_interval_s=5.0),
        retention=RetentionSettings(ttl_s=1000.0),
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "tasks"
    folder.mkdir()
    return folder


@pytest.fixture
def keeper(
    store: Store, settings: Settings, clock: FakeClock, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Keeper:
    monkeypatch.setattr("backburner.engines.keeper.PURGE_AFTER_S", 100.0)
    monkeypatch.setattr("backburner.engines.keeper.PACK_LOGS_AFTER_S", 10.0)
    return Keeper(store, settings, "k1", clock=clock, remove_files=OwnFolder(folder).remove)


def test_a_round_on_a_quiet_store_does_nothing(keeper: Keeper) -> None:
    assert keeper.sweep() == Swept()


def test_one_keeper_works_at_a_time_and_another_takes_over(
    store: Store, settings: Settings, clock: FakeClock, keeper: Keeper
) -> None:
    other = Keeper(store, settings, "k2", clock=clock)
    assert keeper.sweep() == Swept()
    assert other.sweep() is None
    clock.advance(3 * settings.supervisor.keeper_interval_s)
    assert other.sweep() == Swept()
    assert keeper.sweep() is None


def test_a_worker_that_was_silent_for_the_grace_time_and_a_margin_is_lost(
    keeper: Keeper, service: TaskService, worker: Worker, clock: FakeClock
) -> None:
    task_id = service.submit("add", {"a": 1}).task_id
    worker.start(task_id)
    assert keeper.sweep() == Swept()
    clock.advance(36)
    assert keeper.sweep() == Swept()
    clock.advance(0.001)
    assert keeper.sweep() == Swept(lost=[task_id])
    assert service.status(task_id).task.state is State.QUEUED


def test_a_worker_that_is_heard_of_now_and_then_is_not_lost(
    keeper: Keeper, service: TaskService, store: Store, worker: Worker, clock: FakeClock
) -> None:
    lease = worker.start(service.submit("add", {"a": 1}).task_id)
    for _ in range(5):
        clock.advance(20)
        store.heartbeat([lease], [])
        assert keeper.sweep() == Swept()


@pytest.mark.parametrize("hours", [2, -2])
def test_setting_the_clock_loses_no_worker_and_lets_no_dead_one_live(
    keeper: Keeper, service: TaskService, store: Store, worker: Worker, clock: FakeClock, hours: float
) -> None:
    dead = worker.start(service.submit("add", {"a": 1}, ttl_s=86400).task_id)
    alive = worker.start(service.submit("add", {"a": 2}, ttl_s=86400).task_id)
    assert keeper.sweep() == Swept()
    clock.set_wall_clock(hours * 3600)
    assert keeper.sweep() == Swept()
    clock.advance(37)
    store.heartbeat([alive], [])
    assert keeper.sweep() == Swept(lost=[dead.task_id])


@pytest.mark.parametrize("hours", [2, -2])
def test_setting_the_clock_makes_no_task_time_out_early_or_late(
    keeper: Keeper, service: TaskService, store: Store, clock: FakeClock, hours: float
) -> None:
    lease = store.claim_task(service.submit("add", {"a": 1}, ttl_s=86400).task_id, "w1")
    assert lease is not None
    store.report(lease, Started(timeout_at=clock.now_ms() + 1000))
    assert keeper.sweep() == Swept()
    clock.set_wall_clock(hours * 3600)
    assert keeper.sweep() == Swept()
    for swept in (Swept(), Swept(timed_out=[lease.task_id])):
        clock.advance(31)
        store.heartbeat([lease], [])
        assert keeper.sweep() == swept


@pytest.fixture
def local_store(tmp_path: Path, clock: FakeClock) -> Iterator[Store]:
    """A store that goes by this host's clock."""
    store = open_store(f"sqlite:///{tmp_path}/local.db", clock=clock)
    yield store
    store.close()


@pytest.mark.parametrize("hours", [2, -2])
def test_setting_the_clock_of_the_host_makes_no_retry_come_early_or_late(
    local_store: Store, settings: Settings, clock: FakeClock, hours: float
) -> None:
    keeper = Keeper(local_store, settings, "k1", clock=clock)
    assert keeper.sweep() == Swept()
    new = new_task(clock, retry=TWICE_MORE)
    local_store.submit(new)
    Worker(local_store).finish(new.task_id, Failed(TaskError("x", "y")))
    clock.set_wall_clock(hours * 3600)
    assert keeper.sweep() == Swept()
    assert local_store.ready_in_ms() == 10_000
    clock.advance(10)
    assert keeper.sweep() == Swept(ready=[new.task_id])


def test_setting_the_clock_back_makes_no_retry_wait_even_if_no_keeper_has_seen_it(
    store: Store, clock: FakeClock
) -> None:
    new = new_task(clock, retry=TWICE_MORE)
    store.submit(new)
    Worker(store).finish(new.task_id, Failed(TaskError("x", "y")))
    assert store.make_ready() == []
    clock.set_wall_clock(-7200)
    assert store.make_ready() == [new.task_id]


@pytest.mark.parametrize("hours", [2, -2])
def test_setting_the_clock_of_the_host_makes_no_task_expire_early_or_late(
    local_store: Store, settings: Settings, clock: FakeClock, hours: float
) -> None:
    assert Keeper(local_store, settings, "before", clock=clock).sweep() == Swept()
    new = new_task(clock, ttl_s=1000)
    local_store.submit(new)
    clock.set_wall_clock(hours * 3600)
    clock.advance(999)
    keeper = Keeper(local_store, settings, "after", clock=clock)
    assert keeper.sweep() == Swept()
    clock.advance(1)
    assert keeper.sweep() == Swept(expired=[new.task_id])


def test_due_retries_are_put_in_line(keeper: Keeper, store: Store, clock: FakeClock) -> None:
    new = new_task(clock, retry=TWICE_MORE)
    store.submit(new)
    Worker(store).finish(new.task_id, Failed(TaskError("x", "y")))
    assert keeper.sweep() == Swept()
    clock.advance(10)
    assert keeper.sweep() == Swept(ready=[new.task_id])


def test_a_task_that_nobody_ends_times_out(
    keeper: Keeper, service: TaskService, store: Store, clock: FakeClock
) -> None:
    task_id = service.submit("add", {"a": 1}).task_id
    lease = store.claim_task(task_id, "w1")
    assert lease is not None
    store.report(lease, Started(timeout_at=clock.now_ms() + 1000))
    assert keeper.sweep() == Swept()
    clock.advance(100)
    store.heartbeat([lease], [])
    assert keeper.sweep() == Swept(timed_out=[task_id])


def test_an_old_task_expires_and_is_purged_later_and_its_files_go_with_it(
    keeper: Keeper, service: TaskService, clock: FakeClock, folder: Path
) -> None:
    task_id = service.submit("add", {"a": 1}).task_id
    kept = service.submit("add", {"a": 1}, ttl_s=5000).task_id
    for name in (task_id, kept):
        (folder / name / "artifacts").mkdir(parents=True)
    clock.advance(1000)
    assert keeper.sweep() == Swept(expired=[task_id])
    assert [path.name for path in folder.iterdir()] == [kept]
    clock.advance(100.001)
    assert keeper.sweep() == Swept(purged=[task_id])
    assert [task.task_id for task in service.list().tasks] == [kept]


def test_the_logs_of_finished_tasks_are_packed_after_a_while(
    keeper: Keeper, service: TaskService, store: Store, worker: Worker, clock: FakeClock
) -> None:
    task_id = service.submit("add", {"a": 1}).task_id
    lease = worker.start(task_id)
    line = LogLine(1, 1, "stdout", "info", "hello")
    store.report(lease, Logged((line,)), Succeeded("1"))
    assert keeper.sweep() == Swept()
    clock.advance(10.001)
    assert keeper.sweep() == Swept(packed=[task_id])
    assert service.logs(task_id).lines == [line]


def test_a_round_takes_more_than_one_bite_when_there_is_much_to_do(
    store: Store, settings: Settings, clock: FakeClock, keeper: Keeper
) -> None:
    news = [new_task(clock, ttl_s=0) for _ in range(501)]
    for new in news:
        store.submit(replace(new, retry=TWICE_MORE))
    swept = keeper.sweep()
    assert swept is not None
    assert sorted(swept.expired) == sorted(new.task_id for new in news)
