"""The local engine passes the suite that any engine must pass, over both stores."""

from collections.abc import Iterator

import pytest

from backburner import Backburner
from tests import services
from tests.contracts.engine.contract import REPRESENTATIVE, EngineContract
from tests.contracts.engine_tools import contract_app
from tests.integration.engine.local import running


class TestLocalEngineOnSqlite(EngineContract):
    @pytest.fixture(scope="class")
    @classmethod
    def app(cls, tmp_path_factory: pytest.TempPathFactory, run_directory: str) -> Iterator[Backburner]:
        store = f"sqlite:///{tmp_path_factory.mktemp('engine')}/tasks.db"
        app = contract_app(store=store, supervisor={"keeper_interval_s": 0.2})
        with running(app, shared=True):
            yield app


class TestLocalEngineOnPostgres(EngineContract):
    REPRESENTATIVE = REPRESENTATIVE

    @pytest.fixture(scope="class")
    @classmethod
    def app(
        cls, tmp_path_factory: pytest.TempPathFactory, run_directory: str, postgres_url: str
    ) -> Iterator[Backburner]:
        folder = str(tmp_path_factory.mktemp("engine"))
        with services.postgres_database(postgres_url) as url:
            app = contract_app(store=url, data_dir=folder, supervisor={"keeper_interval_s": 0.2})
            with running(app, shared=True):
                yield app
