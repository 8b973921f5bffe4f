"""The chaos ledger on a real Slurm, with a store on PostgreSQL."""

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.contracts.engine.base import eventually
from tests.contracts.engine_tools import contract_app
from tests.integration.engine.local import Local, running
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
from tests.system.outside.slurm.cluster import SlurmCluster

pytestmark = pytest.mark.slow


@pytest.fixture
def local(slurm: SlurmCluster, database_server: PostgresServer, tmp_path: Path) -> Iterator[Local]:
    app = contract_app(
        store=database_server.new_database(),
        data_dir=str(tmp_path / "data"),
        engine="slurm",
        supervisor={**QUICK, "drain_grace_s": 0.3},
    )
    with running(app) as local:
        yield local
    slurm.says("scancel", "--user=root")
    eventually(lambda: not slurm.says("squeue", "-h"))


def plan_of(local: Local, slurm: SlurmCluster, database: PostgresServer) -> list[Fault]:
    def job_requeued() -> None:
        def job() -> str:
            with contextlib.suppress(psutil.NoSuchProcess):
                return runner_at_work(local).environ()["SLURM_JOB_ID"]
            return ""

        slurm.says("scontrol", "requeue", eventually(job))

    def controller_killed() -> None:
        slurm.kill("slurmctld")
        slurm.start_again("slurmctld")

    def controller_restarted() -> None:
        slurm.stop("slurmctld")
        slurm.start_again("slurmctld")

    def node_killed() -> None:
        """Its daemon, and all that runs there."""
        runner_at_work(local)
        slurm.kill("slurmd")
        power_cut([each for job in jobs_of(slurm) for each in family(job)])
        slurm.start_again("slurmd")

    def daemon_of_the_node_killed() -> None:
        slurm.kill("slurmd")
        slurm.start_again("slurmd")

    def supervisor_that_hands_out_stopped() -> None:
        """Meanwhile those at work go on, and what is new is handed out by its server."""
        with stopped(local.supervisor()):
            local.run("add", a=1)

    return [
        job_requeued,
        controller_killed,
        node_killed,
        database.crash,
        controller_restarted,
        daemon_of_the_node_killed,
        database.restart,
        partial(supervisor_stopped_beyond_its_lease, local),
        supervisor_that_hands_out_stopped,
    ]


def jobs_of(slurm: SlurmCluster) -> Iterator[psutil.Process]:
    """Where the jobs of this cluster begin: each with what Slurm has started to watch over it."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if "run-task" in process.cmdline() and process.environ().get("SLURM_CONF") == str(slurm.conf):
                above = process.parent()
                yield above if above is not None and "slurmstepd" in above.name() else process


@pytest.mark.whole
@pytest.mark.timeout(LONGEST_S)
def test_under_chaos_nothing_is_lost_doubled_or_overlapping(
    local: Local, slurm: SlurmCluster, database_server: PostgresServer, tmp_path: Path
) -> None:
    plan = plan_of(local, slurm, database_server)
    with slurm.with_administrator():
        withstands(local, plan, tmp_path / "ledger", usual=2)
