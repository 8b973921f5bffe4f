"""PostgreSQL passes the suite that any store must pass."""

from collections.abc import Iterator

import psycopg
import pytest

from tests import services
from tests.contracts.store.contract import StoreContract

_END_OTHERS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()"""
#: Statements that empty all tables but those that the migrations write.
_EMPTY = """
SELECT string_agg(format('DELETE FROM %I', tablename), '; ') FROM pg_tables
WHERE schemaname = 'public' AND tablename NOT IN ('backburner_version', 'store_secret')"""


class TestPostgresStore(StoreContract):
    @pytest.fixture(scope="class")
    @classmethod
    def database(cls, postgres_url: str) -> Iterator[str]:
        with services.postgres_database(postgres_url) as url:
            yield url

    @pytest.fixture
    def store_url(self, database: str) -> Iterator[str]:
        """A database that is emptied after each test, since a new one takes longer than most tests."""
        yield database
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(_END_OTHERS)
            connection.execute("SET session_replication_role = replica")  # in any order, and without triggers
            (statements,) = connection.execute(_EMPTY).fetchone() or ("",)
            connection.execute(statements or "")
            connection.execute(
                "SELECT setval(quote_ident(sequencename)::regclass, 1, false) FROM pg_sequences"
            )
