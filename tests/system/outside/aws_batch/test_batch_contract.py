"""Tasks run as jobs of AWS Batch: moto has the API, and the command of each job is run as it stands.

A job is a new process: the whole suite for engines takes about three minutes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from backburner import Backburner
from backburner.core.lifecycle import State
from tests.aws import CREDENTIALS, MotoServer
from tests.contracts.engine.base import Work
from tests.contracts.engine.contract import EngineContract
from tests.contracts.engine_tools import contract_app
from tests.integration.engine.local import running
from tests.system.outside.aws_batch.conftest import ENDPOINT, define

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class TestAwsBatch(EngineContract):
    REPRESENTATIVE = frozenset[str]()

    @pytest.fixture(scope="class")
    @classmethod
    def app(
        cls, tmp_path_factory: pytest.TempPathFactory, run_directory: str, moto: MotoServer
    ) -> Iterator[Backburner]:
        store = f"sqlite:///{tmp_path_factory.mktemp('batch')}/tasks.db"
        define(moto.client("batch"), "contract", BACKBURNER_STORE=store)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {**CREDENTIALS, ENDPOINT: moto.url}.items():
                patch.setenv(name, value)
            app = contract_app(
                store=store,
                engine="aws-batch",
                aws_batch={
                    "job_queue": {"*": "lab", "one_by_one": "single"},
                    "job_definition": {"*": "contract"},
                },
                supervisor={"keeper_interval_s": 0.2, "idle_exit_s": 0},
            )
            with running(app, shared=True):
                yield app

    def test_a_task_is_run_by_its_job_and_names_it(self, work: Work, moto: MotoServer) -> None:
        task = work.run("add", a=1, b=2)
        assert (task.state, task.result) == (State.SUCCEEDED, {"sum": 3})
        assert work.trail(task.task_id) == ["submit", "claim", "start", "succeed"]
        listed = moto.client("batch").list_jobs(
            jobQueue="lab", filters=[{"name": "JOB_NAME", "values": [task.task_id]}]
        )
        (job,) = [each["jobId"] for each in listed["jobSummaryList"]]
        (attempt,) = work.store.attempts(task.task_id)
        assert job in str(attempt.worker_id)

    def test_a_running_job_hears_a_cancel_through_the_store(self, work: Work) -> None:
        task_id = work.submit("sleep", seconds=600)
        work.until_state(task_id, State.RUNNING)
        work.service.cancel(task_id)
        assert work.end(task_id).state is State.CANCELLED
