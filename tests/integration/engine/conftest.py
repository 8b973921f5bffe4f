"""A local engine for each test: an app with its supervisor; all its processes are gone afterwards."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.engine_tools import contract_app
from tests.integration.engine.local import Client, Local, running
from tests.integration.engine.partition import Partition

StartLocal = Callable[..., Local]
StartHost = Callable[..., tuple[Local, Partition]]


@pytest.fixture
def start_local(tmp_path: Path, run_directory: str) -> Iterator[StartLocal]:
    """Start an app with the suite's tools on a new store: `start_local(supervisor={"heartbeat_s": …})`."""
    with contextlib.ExitStack() as stack:

        def start(*, supervisor: Mapping[str, Any] | None = None, **settings: Any) -> Local:
            given = {
                "store": f"sqlite:///{tmp_path}/tasks.db",
                "supervisor": {"keeper_interval_s": 0.2, **(supervisor or {})},
                **settings,
            }
            return stack.enter_context(running(contract_app(**given)))

        yield start


@pytest.fixture
def local(start_local: StartLocal) -> Local:
    return start_local()


@pytest.fixture
def client(postgres_database: str, tmp_path: Path) -> Iterator[Client]:
    """For the tasks of a PostgreSQL database, which others work on."""
    client = Client(contract_app(store=postgres_database, data_dir=str(tmp_path / "client")))
    yield client
    client.close()


@pytest.fixture
def start_host(postgres_database: str, tmp_path: Path, run_directory: str) -> Iterator[StartHost]:
    """Start what stands for a host: a server and its supervisor, with a way of their own to the database."""
    with contextlib.ExitStack() as stack:

        def start(name: str, **supervisor: Any) -> tuple[Local, Partition]:
            way = Partition(postgres_database)
            stack.callback(way.close)
            app = contract_app(store=way.url, data_dir=str(tmp_path / name), supervisor=supervisor)
            host = stack.enter_context(running(app))
            stack.callback(way.mend)
            return host, way

        yield start
