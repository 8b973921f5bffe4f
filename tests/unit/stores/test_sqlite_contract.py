"""SQLite passes the suite that any store must pass."""

from pathlib import Path

import pytest

from tests.contracts.store.contract import StoreContract


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def store_url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path}/tasks.db"
