"""Jobs of AWS Batch that have neither the store nor its password: each comes in by the server's door.

The engine makes a token for each job.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from backburner import Backburner
from backburner.core.lifecycle import State
from tests import services
from tests.aws import CREDENTIALS, MotoServer
from tests.contracts.engine.base import Work
from tests.contracts.engine.contract import EngineContract
from tests.contracts.engine_tools import contract_app
from tests.deployment import Deployment, HttpServer
from tests.integration.engine.local import running
from tests.services import free_port
from tests.system.outside.aws_batch.conftest import ENDPOINT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class TestAwsBatchByTheDoor(EngineContract):
    REPRESENTATIVE = frozenset[str]()

    @pytest.fixture(scope="class")
    @classmethod
    def app(
        cls, tmp_path_factory: pytest.TempPathFactory, run_directory: str, moto: MotoServer
    ) -> Iterator[Backburner]:
        port = free_port()
        settings = {
            "engine": "aws-batch",
            "aws_batch__job_queue": json.dumps({"*": "lab", "one_by_one": "single"}),
            # Its containers are told of no store.
            "aws_batch__job_definition": json.dumps({"*": "backburner"}),
            "aws_batch__server": f"http://127.0.0.1:{port}",
        }
        script = Path(__file__).with_name("door_server.py")
        folder = tmp_path_factory.mktemp("door")
        deployment = Deployment(folder, (script,), settings, {**CREDENTIALS, ENDPOINT: moto.url})
        server = HttpServer(deployment.command("http", str(port)), deployment.environment, port)

        def make() -> Backburner:
            return contract_app(
                supervisor={"keeper_interval_s": 0.2, "heartbeat_s": 0.5, "idle_exit_s": 0},
                http={"worker_door": True},
            )

        with deployment, deployment.app(make) as app, running(app, shared=True):
            server.start()
            services.running.add(server.pid)
            try:
                yield app
            finally:
                services.running.discard(server.pid)
                server.stop()

    def test_a_job_runs_its_task_and_knows_no_store(self, work: Work, moto: MotoServer) -> None:
        task = work.run("add", a=1, b=2)
        assert (task.state, task.result) == (State.SUCCEEDED, {"sum": 3})
        batch = moto.client("batch")
        by_name = [{"name": "JOB_NAME", "values": [task.task_id]}]
        (summary,) = batch.list_jobs(jobQueue="lab", filters=by_name)["jobSummaryList"]
        (job,) = batch.describe_jobs(jobs=[summary["jobId"]])["jobs"]
        assert "BACKBURNER_TASK_TOKEN" in {each["name"] for each in job["container"]["environment"]}
        assert "tasks.db" not in json.dumps(job["container"])

    def test_a_running_job_hears_a_cancel_through_the_door(self, work: Work) -> None:
        task_id = work.submit("sleep", seconds=600)
        work.until_log(task_id, "asleep")
        work.service.cancel(task_id)
        assert work.end(task_id).state is State.CANCELLED
