"""Two hosts, and a PostgreSQL server that both reach, for the tests of a file."""

from collections.abc import Iterator

import pytest

from tests.contracts.engine_tools import CANCEL_GRACE_S, MAX_LOG_BYTES
from tests.services import PostgresServer, started
from tests.system.hosts.network import Host, two_hosts

Hosts = tuple[Host, Host]

#: A short hold, so that nobody waits for half a minute; and the limits of the suite's app.
SETTINGS = {
    "supervisor__heartbeat_s": "0.3",
    "supervisor__lease_grace_s": "3",
    "supervisor__keeper_interval_s": "0.2",
    "supervisor__cancel_grace_s": str(CANCEL_GRACE_S),
    "limits__max_log_bytes": str(MAX_LOG_BYTES),
}


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory, run_directory: str) -> Iterator[Hosts]:
    with two_hosts(tmp_path_factory.mktemp("hosts")) as made:
        yield made


@pytest.fixture(scope="module")
def database_server(hosts: Hosts) -> Iterator[PostgresServer]:
    """A server for both hosts, which a test may stop, kill and start again."""
    addresses = [host.way_out for host in hosts]
    with started(PostgresServer(durable=False, addresses=addresses)) as server:
        yield server


@pytest.fixture(scope="module")
def shared_store(database_server: PostgresServer) -> str:
    """The URL of a store of the file's own."""
    return database_server.new_database()
