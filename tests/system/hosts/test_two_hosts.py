"""The local engine passes its suite on PostgreSQL with two hosts, one of them cut off and joined again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from backburner import Backburner
from backburner.core.lifecycle import State
from tests.contracts.engine.base import Work, eventually
from tests.contracts.engine.contract import REPRESENTATIVE, EngineContract
from tests.contracts.engine_tools import contract_app
from tests.integration.engine.local import Client
from tests.system.hosts.conftest import SETTINGS, Hosts

pytestmark = pytest.mark.slow


def cut_off_and_join(client: Client, hosts: Hosts, folder: Path) -> None:
    """One of them, while each has a task under way."""
    one, _ = hosts
    tasks = [client.submit("run_until", folder=str(folder)) for _ in hosts]
    for task_id in tasks:
        client.until_state(task_id, State.RUNNING)
    eventually(one.runners)
    one.cut()
    eventually(lambda: not one.runners())
    one.join()
    (folder / "go").touch()
    assert sorted(client.end(task_id).result for task_id in tasks) == [1, 2]


class TestLocalEngineOnTwoHosts(EngineContract):
    REPRESENTATIVE = REPRESENTATIVE

    @pytest.fixture(scope="class")
    @classmethod
    def app(
        cls, hosts: Hosts, shared_store: str, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[Backburner]:
        one, two = hosts
        one.start(shared_store, SETTINGS, "cpu_standard=1", "one_by_one=1")
        two.start(shared_store, SETTINGS, "cpu_standard=1")
        app = contract_app(store=shared_store, data_dir=str(one.folder.parent))
        client = Client(app)
        cut_off_and_join(client, hosts, tmp_path_factory.mktemp("gate"))
        yield app
        client.close()
        for host in hosts:
            host.kill()

    @pytest.fixture
    def work(self, app: Backburner) -> Iterator[Work]:
        """Which starts nobody to work: the hosts do."""
        client = Client(app)
        yield client
        client.service.close()
