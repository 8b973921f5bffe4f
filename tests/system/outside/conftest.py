"""For the chaos of the engines outside: a PostgreSQL server that may be stopped and killed."""

from collections.abc import Iterator

import pytest

from tests.services import PostgresServer, started


@pytest.fixture(scope="module")
def database_server(run_directory: str) -> Iterator[PostgresServer]:
    """A server for the tests of a file, each of which makes a database of its own."""
    with started(PostgresServer(durable=False)) as server:
        yield server
