"""The chaos ledger on AWS Batch, as far as moto's server and the computers of the tests stand for it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.aws import MotoServer
from tests.contracts.engine.base import eventually
from tests.contracts.engine_tools import contract_app
from tests.integration.engine.local import Local, running
from tests.integration.engine.partition import Partition
from tests.ledger import (
    LONGEST_S,
    QUICK,
    Fault,
    family,
    power_cut,
    runner_at_work,
    stopped,
    supervisor_stopped_beyond_its_lease,
    withstands,
)
from tests.services import PostgresServer
from tests.system.outside.aws_batch.conftest import ENDPOINT, define

pytestmark = pytest.mark.slow


@pytest.fixture
def way(moto: MotoServer) -> Iterator[Partition]:
    """How Backburner reaches Batch; the computers have their own way."""
    with contextlib.closing(Partition(moto.url)) as way:
        yield way


@pytest.fixture
def local(
    moto: MotoServer,
    way: Partition,
    database_server: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Local]:
    given: dict[str, Any] = {"store": database_server.new_database(), "data_dir": str(tmp_path / "data")}
    variables = {"BACKBURNER_STORE": given["store"], "BACKBURNER_DATA_DIR": given["data_dir"]}
    define(moto.client("batch"), tmp_path.name, **variables)
    tables = {"job_queue": {"*": "lab"}, "job_definition": {"*": tmp_path.name}}
    monkeypatch.setenv(ENDPOINT, way.url)
    app = contract_app(**given, engine="aws-batch", aws_batch=tables, supervisor=QUICK)
    with running(app, shared=True) as local:
        yield local


def plan_of(local: Local, way: Partition, database: PostgresServer) -> list[Fault]:
    # A job that ends before its task has begun counts against it, so what ends some comes after that.
    def all_have_begun() -> None:
        eventually(lambda: not any(depth.queued for depth in local.store.queue_depths()))

    def database_killed() -> None:
        all_have_begun()
        database.crash()

    def database_restarted() -> None:
        all_have_begun()
        database.restart()

    def container_killed() -> None:
        power_cut(family(runner_at_work(local).parents()[1]))

    def batch_away() -> None:
        way.cut()
        waits = local.submit("add", a=1)
        assert "cannot be reached now" in str(
            local.until(waits, lambda task: task.waits_for is not None).task.waits_for
        )
        way.mend()
        local.end(waits)

    def batch_does_not_answer() -> None:
        way.freeze()
        waits = local.submit("add", a=1)
        eventually(lambda: local.store.hand_outs("aws-batch"))
        way.mend()
        local.end(waits)

    def supervisor_that_hands_out_stopped() -> None:
        """Meanwhile those at work go on, and what is new is handed out by its server."""
        with stopped(local.supervisor()):
            local.run("add", a=1)

    return [
        container_killed,
        batch_away,
        database_killed,
        database_restarted,
        batch_does_not_answer,
        partial(supervisor_stopped_beyond_its_lease, local),
        supervisor_that_hands_out_stopped,
    ]


@pytest.mark.whole
@pytest.mark.timeout(LONGEST_S)
def test_under_chaos_nothing_is_lost_doubled_or_overlapping(
    local: Local, way: Partition, database_server: PostgresServer, tmp_path: Path
) -> None:
    plan = plan_of(local, way, database_server)
    withstands(local, plan, tmp_path / "ledger", usual=2)
