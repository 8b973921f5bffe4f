"""PostgreSQL passes the suite that any store must pass."""

import pytest

from backburner.testing import StoreContract


class TestPostgresStore(StoreContract):
    @pytest.fixture
    def store_url(self, postgres_database: str) -> str:
        return postgres_database
