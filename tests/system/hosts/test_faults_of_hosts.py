"""Two hosts whose clocks are ten minutes apart, and all that can happen to them and to their database."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from backburner.core.lifecycle import State
from tests.contracts.engine.base import eventually, is_alive
from tests.contracts.engine_tools import contract_app
from tests.integration.engine.local import Client
from tests.ledger import LONGEST_S, stopped, withstands
from tests.services import PostgresServer, WallClock
from tests.system.hosts.conftest import SETTINGS, Hosts
from tests.system.hosts.network import Host

pytestmark = pytest.mark.slow

WORKERS = "cpu_standard=2"


@pytest.fixture
def start(shared_store: str, hosts: Hosts, wall_clock: WallClock) -> Iterator[Callable[[Host], None]]:
    """Start a host with two workers; the clock of the second is ten minutes ahead."""
    wall_clock.set(hours=1 / 6)

    def start(host: Host) -> None:
        with pytest.MonkeyPatch.context() as patch:
            if host is hosts[1]:
                wall_clock.show_to_children(patch)
            host.start(shared_store, SETTINGS, WORKERS)

    yield start
    for host in hosts:
        host.kill()


@pytest.fixture
def client(shared_store: str, hosts: Hosts) -> Iterator[Client]:
    app = contract_app(store=shared_store, data_dir=str(hosts[0].folder.parent))
    with contextlib.closing(Client(app)) as client:
        yield client


def running(client: Client, ledger: Path, kind: str, seconds: float) -> str:
    task_id = client.submit("ledgered", kind=kind, ledger=str(ledger), seconds=seconds)
    client.until_state(task_id, State.RUNNING)
    return task_id


def families(host: Host) -> list[psutil.Process]:
    """The processes in which tools run, and those that they have started."""
    return [one for runner in host.runners() for one in [runner, *runner.children(recursive=True)]]


@pytest.mark.whole
def test_the_tasks_of_a_host_that_is_cut_off_go_on_at_the_other_and_it_works_again_when_it_is_joined(
    hosts: Hosts, start: Callable[[Host], None], client: Client, tmp_path: Path
) -> None:
    one, two = hosts
    start(one)
    tasks = [running(client, tmp_path, kind, 600) for kind in ("child", "busy")]
    # Two, and the child of the first, which the tool starts a moment after it has begun.
    runners = eventually(lambda: found if len(found := families(one)) == 3 else None)
    start(two)
    one.cut()
    for task_id in tasks:
        client.until(task_id, lambda task: task.attempt == 2 and task.state is State.RUNNING)
    assert not [process for process in runners if is_alive(process.pid)]
    one.join()
    assert client.run("parent").result == one.supervisor.pid, "the other has no worker left"
    for task_id in tasks:
        client.service.cancel(task_id)
        assert client.end(task_id).state is State.CANCELLED
        assert client.trail(task_id)[:6] == ["submit", "claim", "start", "retry", "claim", "start"]
    assert "overlap" not in (tmp_path / "ledger").read_text()


@pytest.mark.whole
@pytest.mark.timeout(LONGEST_S)
def test_under_chaos_of_hosts_and_database_nothing_is_lost_doubled_or_overlapping(
    hosts: Hosts,
    start: Callable[[Host], None],
    client: Client,
    database_server: PostgresServer,
    tmp_path: Path,
) -> None:
    one, two = hosts
    start(one)
    start(two)

    def supervisor_is_stopped_beyond_its_lease() -> None:
        eventually(one.runners)
        with stopped(one.supervisor):
            eventually(lambda: not one.runners())

    def host_is_killed() -> None:
        eventually(two.runners)
        two.kill()
        start(two)

    def host_is_cut_off() -> None:
        eventually(one.runners)
        one.cut()
        eventually(lambda: not one.runners())
        one.join()

    plan = [
        database_server.restart,
        supervisor_is_stopped_beyond_its_lease,
        database_server.crash,
        host_is_killed,
        host_is_cut_off,
    ]
    withstands(client, plan, tmp_path / "ledger", usual=len(plan), seconds=1.5)
    assert is_alive(one.supervisor.pid)
    assert is_alive(two.supervisor.pid)
