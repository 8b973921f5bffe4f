"""Tasks as jobs of AWS Batch, through the API that boto3 talks to."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backburner import Backburner
from backburner.engines.aws_batch import make_queue
from backburner.engines.outside.rounds import Rounds
from backburner.errors import EngineError
from backburner.lifecycle import State
from backburner.stores import open_store
from backburner.task import Resources
from backburner.testing import FakeClock, contract_app
from tests.aws import MotoServer
from tests.engine.local import Client
from tests.outside.aws_batch.conftest import FULL, TABLES, end_at_once

QUEUE = "cpu_standard"


def app_on(tmp_path: Path, endpoint: str, **batch: Any) -> Backburner:
    settings = {**TABLES, "endpoint": endpoint, "target": "lab.py", **batch}
    return contract_app(
        store=f"sqlite:///{tmp_path}/tasks.db", queues={QUEUE: {"engine": "aws-batch"}}, aws_batch=settings
    )


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def client(tmp_path: Path, moto: MotoServer, clock: FakeClock) -> Iterator[Client]:
    app = app_on(tmp_path, moto.url)
    vars(app)["store"] = open_store(app.settings.store, clock=clock)
    with contextlib.closing(Client(app)) as client:
        yield client


@pytest.fixture
def rounds(client: Client) -> Rounds:
    return Rounds(client.store, make_queue(client.app.settings, [QUEUE]), [QUEUE])


def jobs_of(batch: Any, *task_ids: str) -> list[dict[str, Any]]:
    found = batch.list_jobs(jobQueue=FULL, filters=[{"name": "JOB_NAME", "values": ["tsk_*"]}])
    ids = [job["jobId"] for job in found["jobSummaryList"] if job["jobName"] in task_ids]
    jobs: list[dict[str, Any]] = batch.describe_jobs(jobs=ids)["jobs"] if ids else []
    return jobs


def test_a_task_is_a_job_with_its_resources_and_ends_with_it(
    client: Client, rounds: Rounds, batch: Any
) -> None:
    task_id = client.submit("add", {"resources": Resources(60, 1.5, 1000)}, a=1, b=2)
    others = [client.submit("add", a=1, b=2) for _ in range(101)]
    rounds.round()
    (job,) = jobs_of(batch, task_id)
    assert job["container"]["command"] == ["backburner", "run-task", task_id, "-t", "lab.py"]
    assert job["timeout"] == {"attemptDurationSeconds": 960}
    assert (job["jobQueue"].endswith(f"job-queue/{FULL}"), job["jobName"]) == (True, task_id)
    (plain,) = jobs_of(batch, others[-1])
    assert plain["container"]["command"][2] == others[-1]
    out = client.store.hand_outs("aws-batch")
    queue = make_queue(client.app.settings, [QUEUE])
    assert {one.state for one in queue.look(out).values()} == {"there"}
    assert len(queue.look(out)) == 102
    client.service.cancel(task_id)
    rounds.round()
    (ended,) = jobs_of(batch, task_id)
    assert ended["statusReason"] == "The task is cancelled."
    queue.withdraw(out)  # harmless, also for the one that is ended


def test_jobs_that_end_and_begin_nothing_fail_the_task_which_says_where_their_log_is(
    client: Client, rounds: Rounds, moto: MotoServer, clock: FakeClock
) -> None:
    end_at_once(moto, yes=True)
    try:
        task_id = client.submit("add", a=1, b=2)
        for _ in range(3):
            rounds.round()
            clock.advance(6)
            rounds.round()
    finally:
        end_at_once(moto, yes=False)
    task = client.service.status(task_id).task
    assert task.state is State.FAILED
    assert task.error is not None
    assert task.error.type == "job_ended"
    assert "is SUCCEEDED" in task.error.message
    assert "CloudWatch: group /aws/batch/job, stream backburner/default/" in task.error.message


def refusal(client: Client, tmp_path: Path, endpoint: str, **batch: Any) -> str:
    """Why a task waits that Batch did not take."""
    with contextlib.closing(app_on(tmp_path, endpoint, **batch)) as app:
        task_id = client.submit("add", a=1, b=2)
        Rounds(client.store, make_queue(app.settings, [QUEUE]), [QUEUE]).hand_out([task_id])
    waiting = client.service.status(task_id).task
    assert waiting.state is State.QUEUED
    return str(waiting.waits_for)


def test_what_batch_does_not_take_waits_and_says_what_to_do(
    client: Client, tmp_path: Path, moto: MotoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = refusal(client, tmp_path, moto.url, job_definition={"*": "not-there"})
    assert "not-there does not exist" in said
    assert "see aws_batch.job_queue and aws_batch.job_definition" in said
    assert "it cannot be reached now" in refusal(client, tmp_path, "http://127.0.0.1:9")
    for status, code, what_to_do in (
        (429, "TooManyRequestsException", "raise it in Service Quotas"),
        (403, "UnrecognizedClientException", "the access key is not known there; set AWS_ACCESS_KEY_ID"),
        (403, "AccessDeniedException", "let these credentials do it"),
    ):
        with refusing(status, code) as endpoint:
            assert what_to_do in refusal(client, tmp_path, endpoint)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    assert "set AWS_ACCESS_KEY_ID" in refusal(client, tmp_path, moto.url)


def test_a_job_asks_for_what_its_task_may_have(client: Client, tmp_path: Path) -> None:
    heard: list[dict[str, Any]] = []
    task_id = client.submit("add", {"resources": Resources(60, 1.5, 1000)}, a=1, b=2)
    with (
        refusing(403, "AccessDeniedException", heard) as endpoint,
        contextlib.closing(app_on(tmp_path, endpoint)) as app,
    ):
        Rounds(client.store, make_queue(app.settings, [QUEUE]), [QUEUE]).hand_out([task_id])
    assert heard[0]["containerOverrides"]["resourceRequirements"] == [
        {"type": "VCPU", "value": "2"},
        {"type": "MEMORY", "value": "1512"},
    ]
    assert heard[0]["retryStrategy"] == {"attempts": 1}


def test_a_queue_without_a_job_queue_is_refused(tmp_path: Path) -> None:
    with (
        contextlib.closing(app_on(tmp_path, "", job_queue={"gpu_small": "lab"})) as app,
        pytest.raises(EngineError, match=r"queue cpu_standard has none; set aws_batch\.job_queue"),
    ):
        make_queue(app.settings, [QUEUE])


@contextlib.contextmanager
def refusing(status: int, code: str, heard: list[dict[str, Any]] | None = None) -> Iterator[str]:
    """A server that answers as Batch does when it refuses: moto has no quotas, and knows all credentials."""

    class Refusing(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if heard is not None:
                heard.append(said)
            body = b'{"message": "No."}'
            self.send_response(status)
            self.send_header("x-amzn-ErrorType", code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        serving.join()
