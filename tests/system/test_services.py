"""The services that other tests stand on."""

import psycopg
import pytest

from tests.services import PostgresServer


def test_each_database_is_new_and_keeps_what_is_committed(postgres_database: str) -> None:
    with psycopg.connect(postgres_database) as connection:
        connection.execute("CREATE TABLE note (text text)")
        connection.execute("INSERT INTO note VALUES ('kept')")
    with psycopg.connect(postgres_database) as connection:
        assert connection.execute("SELECT text FROM note").fetchall() == [("kept",)]


def test_a_database_holds_nothing_of_the_test_before(postgres_database: str) -> None:
    with psycopg.connect(postgres_database) as connection:
        assert connection.execute("SELECT to_regclass('note')").fetchone() == (None,)


def test_an_acknowledged_commit_is_on_disk(postgres_server: PostgresServer) -> None:
    with psycopg.connect(postgres_server.url) as connection:
        for setting in ("fsync", "synchronous_commit"):
            assert connection.execute(f"SHOW {setting}").fetchone() == ("on",)


@pytest.mark.whole
def test_a_server_keeps_its_port_and_its_data_over_a_restart_and_a_kill(
    postgres_server: PostgresServer,
) -> None:
    with psycopg.connect(postgres_server.url) as connection:
        connection.execute("CREATE TABLE note (text text)")
    postgres_server.restart()
    with psycopg.connect(postgres_server.url) as connection:
        connection.execute("INSERT INTO note VALUES ('kept')")
    postgres_server.kill()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(postgres_server.url)
    postgres_server.start()
    with psycopg.connect(postgres_server.url) as connection:
        assert connection.execute("SELECT text FROM note").fetchall() == [("kept",)]
