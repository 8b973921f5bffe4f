"""The local engine passes the suite that any engine must pass, over both stores."""

import uuid
from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg
import pytest

from backburner import Backburner
from backburner.testing import EngineContract, contract_app
from tests.engine_contract import REPRESENTATIVE
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
        name = f"backburner_{uuid.uuid4().hex}"
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
            url = urlsplit(postgres_url)._replace(path=f"/{name}").geturl()
            folder = str(tmp_path_factory.mktemp("engine"))
            app = contract_app(store=url, data_dir=folder, supervisor={"keeper_interval_s": 0.2})
            with running(app, shared=True):
                yield app
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
