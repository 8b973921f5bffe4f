"""Celery passes the suite that any engine must pass, on both brokers."""

from collections.abc import Iterator

import pytest

from backburner import Backburner
from tests.contracts.engine.contract import EngineContract
from tests.services import RabbitServer, RedisServer
from tests.system.outside.broker_workers import broker_app, working


@pytest.mark.whole
class TestCeleryOnRabbit(EngineContract):
    @pytest.fixture(scope="class")
    @classmethod
    def app(
        cls, tmp_path_factory: pytest.TempPathFactory, run_directory: str, rabbit_server: RabbitServer
    ) -> Iterator[Backburner]:
        app = broker_app("celery", rabbit_server.url, tmp_path_factory.mktemp("celery"))
        with working(app):
            yield app


@pytest.mark.whole
class TestCeleryOnRedis(EngineContract):
    @pytest.fixture(scope="class")
    @classmethod
    def app(
        cls, tmp_path_factory: pytest.TempPathFactory, run_directory: str, redis_server: RedisServer
    ) -> Iterator[Backburner]:
        app = broker_app("celery", redis_server.url, tmp_path_factory.mktemp("celery"))
        with working(app):
            yield app
