"""Jobs of AWS Batch that end while their task runs, or cannot begin it; and apps that are elsewhere there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from backburner.core.lifecycle import State
from tests.aws import MotoServer
from tests.contracts.engine.base import eventually
from tests.contracts.engine_tools import contract_app
from tests.integration.engine.local import Local, kill, running
from tests.system.outside.aws_batch.conftest import define

pytestmark = pytest.mark.slow

APP = """\
from backburner import Backburner

bb = Backburner("engine_contract", queues={"cpu_standard": 1})

@bb.tool
def add(a: int, b: int) -> str:
    return "done where the container has it"
"""


@pytest.fixture
def definition(tmp_path: Path, batch: Any) -> str:
    """A job definition for this test's store."""
    define(batch, tmp_path.name, BACKBURNER_STORE=f"sqlite:///{tmp_path}/tasks.db")
    return tmp_path.name


@pytest.fixture
def given(tmp_path: Path, request: pytest.FixtureRequest) -> dict[str, str]:
    """More settings of `aws_batch`: where the container has the app, if a test says so."""
    there = getattr(request, "param", "")
    return {"target": str(tmp_path / there)} if there else {}


@pytest.fixture
def local(tmp_path: Path, moto: MotoServer, definition: str, given: dict[str, str]) -> Iterator[Local]:
    tables = {"job_queue": {"*": "lab"}, "job_definition": {"*": definition}}
    app = contract_app(
        store=f"sqlite:///{tmp_path}/tasks.db",
        engine="aws-batch",
        aws_batch={**tables, **given},
        supervisor={"keeper_interval_s": 0.2, "heartbeat_s": 0.3, "lease_grace_s": 3.0, "drain_grace_s": 0.2},
    )
    with running(app) as local:
        yield local


def jobs_of(batch: Any, task_id: str) -> list[dict[str, Any]]:
    """The jobs of a task, the oldest first."""
    listed = batch.list_jobs(jobQueue="lab", filters=[{"name": "JOB_NAME", "values": [task_id]}])
    jobs: list[dict[str, Any]] = sorted(listed["jobSummaryList"], key=lambda job: job["createdAt"])
    return jobs


@pytest.mark.whole
def test_a_task_whose_job_an_administrator_terminates_is_handed_back_and_runs_in_another(
    local: Local, batch: Any
) -> None:
    task_id = local.submit("sleep", seconds=600)
    local.until_log(task_id, "asleep")
    (job,) = jobs_of(batch, task_id)
    batch.terminate_job(jobId=job["jobId"], reason="The lab is closed, says Eve.")
    eventually(lambda: local.lines(task_id).count("asleep") == 2)
    assert local.trail(task_id) == ["submit", "claim", "start", "hand_back", "claim", "start"]
    eventually(lambda: [job["status"] for job in jobs_of(batch, task_id)] == ["FAILED", "RUNNING"])
    first, _ = jobs_of(batch, task_id)
    handed_back, _ = local.store.attempts(task_id)
    assert (handed_back.outcome, first["jobId"] in str(handed_back.worker_id)) == ("handedback", True)
    local.service.cancel(task_id)
    assert local.end(task_id).state is State.CANCELLED


@pytest.mark.whole
def test_a_task_whose_container_is_gone_is_a_lost_worker_and_names_the_job(local: Local, batch: Any) -> None:
    task_id = local.submit("sleep", seconds=600)
    local.until_log(task_id, "asleep")
    (job,) = jobs_of(batch, task_id)
    (main,) = [each for each in psutil.process_iter(["cmdline"]) if task_id in (each.info["cmdline"] or ())]
    kill(main, *main.children(recursive=True))
    task = local.until(task_id, lambda task: task.attempt == 2 and task.state is State.RUNNING).task
    assert task.error is not None
    assert task.error.type == "worker_lost"
    assert job["jobId"] in task.error.message
    local.service.cancel(task_id)
    local.end(task_id)


@pytest.mark.whole
@pytest.mark.parametrize("given", ["not_there.py"], indirect=True)
def test_a_job_that_cannot_begin_fails_its_task_which_names_its_log(
    local: Local, batch: Any, moto: MotoServer
) -> None:
    # A job that has begun nothing is looked at after five seconds, and there are three of them.
    task = local.service.wait(local.submit("add", a=1, b=2), 90).task
    assert task.state is State.FAILED
    assert task.error is not None
    assert task.error.type == "job_ended"
    job = jobs_of(batch, task.task_id)[-1]
    stream = batch.describe_jobs(jobs=[job["jobId"]])["jobs"][0]["container"]["logStreamName"]
    assert f"stream {stream}" in task.error.message
    logs = moto.client("logs").get_log_events(logGroupName="/aws/batch/job", logStreamName=stream)
    assert any("not_there" in event["message"] for event in logs["events"])


@pytest.mark.whole
@pytest.mark.parametrize("given", ["lab.py"], indirect=True)
def test_the_app_is_run_that_the_container_has(local: Local, given: dict[str, str]) -> None:
    Path(given["target"]).write_text(APP)
    assert local.run("add", a=1, b=2).result == "done where the container has it"
