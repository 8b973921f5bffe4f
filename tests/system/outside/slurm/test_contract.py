"""The engine `slurm` passes the suite that any engine must pass, on a real Slurm.

Each task is a job, which takes seconds to start: the whole suite takes about ten minutes.
"""

from collections.abc import Iterator

import pytest

from backburner import Backburner
from tests.contracts.engine.contract import REPRESENTATIVE, EngineContract
from tests.contracts.engine_tools import contract_app
from tests.integration.engine.local import running
from tests.system.outside.slurm.cluster import SlurmCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class TestSlurm(EngineContract):
    REPRESENTATIVE = REPRESENTATIVE

    @pytest.fixture(scope="class")
    @classmethod
    def app(
        cls, slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory, run_directory: str
    ) -> Iterator[Backburner]:
        app = contract_app(
            store=f"sqlite:///{tmp_path_factory.mktemp('engine')}/tasks.db",
            engine="slurm",
            slurm={"arguments": {"one_by_one": "--licenses=single"}},
            supervisor={"keeper_interval_s": 0.2, "idle_exit_s": 0},
        )
        with running(app, shared=True):
            yield app
