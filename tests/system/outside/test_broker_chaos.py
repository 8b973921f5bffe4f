"""The chaos ledger on Dramatiq and Celery, each on both brokers, with a store on PostgreSQL."""

import contextlib
from functools import partial
from pathlib import Path

import pika
import pytest

from tests.integration.engine.local import Local, running
from tests.ledger import LONGEST_S, QUICK, Fault, stopped, supervisor_stopped_beyond_its_lease, withstands
from tests.services import PostgresServer, RabbitServer, RedisServer
from tests.system.outside.broker_workers import WorkerHost, broker_app

pytestmark = pytest.mark.slow

QUEUE = "cpu_standard"


def plan_of(
    local: Local, host: WorkerHost, database: PostgresServer, broker: RedisServer | RabbitServer
) -> list[Fault]:
    def messages_lost() -> None:
        if isinstance(broker, RedisServer):
            broker.flush()
        else:
            queue = local.app.settings.broker.name_of(local.app.settings.engine, QUEUE)
            with contextlib.closing(pika.BlockingConnection(pika.URLParameters(broker.url))) as connection:
                connection.channel().queue_purge(queue)

    def worker_host_killed() -> None:
        host.power_cut()
        host.start()

    def workers_killed() -> None:
        host.kill_workers()
        host.start()

    def supervisor_that_hands_out_stopped() -> None:
        """Meanwhile those at work go on, and what is new is handed out by its server."""
        with stopped(local.supervisor()):
            local.run("add", a=1)

    return [
        messages_lost,
        worker_host_killed,
        database.crash,
        broker.restart,
        workers_killed,
        database.restart,
        partial(supervisor_stopped_beyond_its_lease, local),
        supervisor_that_hands_out_stopped,
    ]


@pytest.mark.whole
@pytest.mark.timeout(LONGEST_S)
@pytest.mark.parametrize(
    ("engine", "broker"),
    [
        ("dramatiq", "redis_server"),
        ("celery", "rabbit_server"),
        pytest.param("dramatiq", "rabbit_server", marks=pytest.mark.whole),
        pytest.param("celery", "redis_server", marks=pytest.mark.whole),
    ],
)
def test_under_chaos_nothing_is_lost_doubled_or_overlapping(
    engine: str,
    broker: str,
    database_server: PostgresServer,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    server = request.getfixturevalue(broker)
    own = {"store": database_server.new_database(), "data_dir": str(tmp_path / "data"), "supervisor": QUICK}
    app = broker_app(engine, server.url, tmp_path, **own)
    host = WorkerHost(app, [QUEUE])
    with running(app, shared=True) as local, contextlib.closing(host):
        host.start()
        withstands(local, plan_of(local, host, database_server, server), tmp_path / "ledger", usual=2)
