"""Tasks as jobs of AWS Batch, through the API that boto3 talks to."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from backburner import Backburner
from backburner.core.lifecycle import State
from backburner.core.task import Resources
from backburner.engines.aws_batch import make_queue
from backburner.engines.external import Dispatcher
from backburner.engines.remote import TaskTokens
from backburner.errors import ConfigError, EngineError
from backburner.store import open_store
from backburner.testing import FakeClock
from tests.aws import MotoServer
from tests.contracts.engine_tools import contract_app
from tests.integration.engine.local import Client
from tests.services import wait_until
from tests.system.outside.aws_batch.conftest import ENDPOINT, FULL, TABLES, end_at_once

QUEUE = "cpu_standard"


@contextlib.contextmanager
def batch_at(endpoint: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ENDPOINT, endpoint)
        yield


def app_on(tmp_path: Path, **batch: Any) -> Backburner:
    settings = {**TABLES, "target": "lab.py", **batch}
    return contract_app(
        store=f"sqlite:///{tmp_path}/tasks.db", queues={QUEUE: {"engine": "aws-batch"}}, aws_batch=settings
    )


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def client(tmp_path: Path, moto: MotoServer, clock: FakeClock) -> Iterator[Client]:
    app = app_on(tmp_path)
    vars(app)["store"] = open_store(app.settings.store, clock=clock)
    with contextlib.closing(Client(app)) as client:
        yield client


@pytest.fixture
def rounds(client: Client) -> Dispatcher:
    return rounds_of(client.app, client)


def rounds_of(app: Backburner, client: Client) -> Dispatcher:
    """With the settings of an app, on the store of a client."""
    return Dispatcher(client.store, make_queue(app.settings, [QUEUE], client.store.secret), [QUEUE])


def jobs_of(batch: Any, *task_ids: str) -> list[dict[str, Any]]:
    found = batch.list_jobs(jobQueue=FULL, filters=[{"name": "JOB_NAME", "values": ["tsk_*"]}])
    ids = [job["jobId"] for job in found["jobSummaryList"] if job["jobName"] in task_ids]
    jobs: list[dict[str, Any]] = batch.describe_jobs(jobs=ids)["jobs"] if ids else []
    return jobs


def test_a_task_is_a_job_with_its_resources_and_ends_with_it(
    client: Client, rounds: Dispatcher, batch: Any
) -> None:
    task_id = client.submit("add", {"resources": Resources(60, 1.5, 1000)}, a=1, b=2)
    others = [client.submit("add", a=1, b=2) for _ in range(101)]
    rounds.run_round()
    (job,) = jobs_of(batch, task_id)
    assert job["container"]["command"] == ["backburner", "run-task", task_id, "-t", "lab.py"]
    assert job["timeout"] == {"attemptDurationSeconds": 960}
    assert (job["jobQueue"].endswith(f"job-queue/{FULL}"), job["jobName"]) == (True, task_id)
    (plain,) = jobs_of(batch, others[-1])
    assert plain["container"]["command"][2] == others[-1]
    out = client.store.hand_outs("aws-batch")
    queue = make_queue(client.app.settings, [QUEUE], bytes)
    assert {one.state for one in queue.status(out).values()} == {"active"}
    assert len(queue.status(out)) == 102
    client.service.cancel(task_id)
    rounds.run_round()
    (ended,) = jobs_of(batch, task_id)
    assert ended["statusReason"] == "The task is cancelled."
    queue.cancel(out)  # harmless, also for the one that is ended


def test_jobs_that_end_and_begin_nothing_fail_the_task_which_says_where_their_log_is(
    client: Client, rounds: Dispatcher, moto: MotoServer, clock: FakeClock
) -> None:
    end_at_once(moto, yes=True)
    try:
        task_id = client.submit("add", a=1, b=2)
        for _ in range(3):
            rounds.run_round()
            clock.advance(6)
            rounds.run_round()
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
    with batch_at(endpoint), contextlib.closing(app_on(tmp_path, **batch)) as app:
        task_id = client.submit("add", a=1, b=2)
        rounds_of(app, client).dispatch([task_id])
    waiting = client.service.status(task_id).task
    assert waiting.state is State.QUEUED
    return str(waiting.waits_for)


@pytest.mark.whole
def test_what_batch_does_not_take_waits_and_says_what_to_do(
    client: Client, tmp_path: Path, moto: MotoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = refusal(client, tmp_path, moto.url, job_definition={"*": "not-there"})
    assert "not-there does not exist" in said
    assert "see aws_batch.job_queue and aws_batch.job_definition" in said
    assert "it cannot be reached now" in refusal(client, tmp_path, "http://127.0.0.1:9")
    for status, code, what_to_do in (
        (429, "TooManyRequestsException", "raise it in Service Quotas"),
        (403, "UnrecognizedClientException", "the service does not know the access key; set AWS_"),
        (403, "AccessDeniedException", "allow these credentials to do it"),
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
        batch_at(endpoint),
        contextlib.closing(app_on(tmp_path)) as app,
    ):
        rounds_of(app, client).dispatch([task_id])
    assert heard[0]["containerOverrides"]["resourceRequirements"] == [
        {"type": "VCPU", "value": "2"},
        {"type": "MEMORY", "value": "1512"},
    ]
    assert heard[0]["retryStrategy"] == {"attempts": 1}


def test_a_queue_without_a_job_queue_is_refused(tmp_path: Path) -> None:
    with (
        contextlib.closing(app_on(tmp_path, job_queue={"gpu_small": "lab"})) as app,
        pytest.raises(EngineError, match=r"queue cpu_standard has none; set aws_batch\.job_queue"),
    ):
        make_queue(app.settings, [QUEUE], bytes)


def test_what_batch_refuses_about_some_jobs_is_told_at_once_and_stops_no_other(
    client: Client, rounds: Dispatcher, tmp_path: Path, clock: FakeClock, batch: Any
) -> None:
    plain = {"resources": Resources()}
    large, larger = {"resources": Resources(memory_mb=10**6)}, {"resources": Resources(memory_mb=10**7)}
    asked = [large, plain, larger, large, plain]
    task_ids = [client.submit("add", options, a=1, b=2) for options in asked]
    heard: list[dict[str, Any]] = []

    def is_large(job: dict[str, Any]) -> bool:
        return bool(job["containerOverrides"]["resourceRequirements"])

    with (
        refusing(400, "ClientException", heard, only=is_large) as endpoint,
        batch_at(endpoint),
        contextlib.closing(app_on(tmp_path)) as app,
    ):
        rounds_of(app, client).dispatch()
    waits = [str(client.service.status(task_id).task.waits_for) for task_id in task_ids]
    assert ["No (ClientException)" in why for why in waits] == [True, False, True, True, False]
    assert len(heard) == 4, "what asks for the same is not asked for twice"
    clock.advance(3)
    rounds.dispatch()
    assert [len(jobs_of(batch, task_id)) for task_id in task_ids] == [1, 0, 1, 1, 0]
    assert client.service.status(task_ids[0]).task.waits_for is None


def test_what_is_left_when_batch_stops_taking_jobs_says_why_at_once(client: Client, tmp_path: Path) -> None:
    task_ids = [client.submit("add", a=1, b=2) for _ in range(5)]
    heard: list[dict[str, Any]] = []
    with (
        refusing(403, "ExpiredTokenException", heard, only=lambda _: len(heard) > 2) as endpoint,
        batch_at(endpoint),
        contextlib.closing(app_on(tmp_path)) as app,
    ):
        rounds_of(app, client).dispatch()
    waits = [str(client.service.status(task_id).task.waits_for) for task_id in task_ids]
    assert waits[:2] == ["None"] * 2
    assert all("the session has expired; get new credentials" in why for why in waits[2:])
    assert len(heard) == 3


def test_jobs_that_an_administrator_cancels_are_replaced_and_after_a_few_the_task_says_so(
    client: Client, rounds: Dispatcher, batch: Any, clock: FakeClock
) -> None:
    task_id = client.submit("add", a=1, b=2)
    seen: list[str] = []

    def has_failed() -> bool:
        return bool(batch.describe_jobs(jobs=seen[-1:])["jobs"][0]["status"] == "FAILED")

    for _ in range(3):
        assert client.service.status(task_id).task.state is State.QUEUED
        rounds.run_round()
        seen += [each["jobId"] for each in jobs_of(batch, task_id) if each["jobId"] not in seen]
        batch.cancel_job(jobId=seen[-1], reason="The lab is closed, says Eve.")
        assert wait_until(has_failed)
        clock.advance(6)
        rounds.run_round()
    task = client.service.status(task_id).task
    assert (task.state, len(seen)) == (State.FAILED, 3)
    assert task.error is not None
    assert task.error.type == "job_ended"
    assert f"job {seen[-1]} is FAILED: The lab is closed, says Eve" in task.error.message


def test_a_job_that_comes_by_the_door_has_a_token_for_its_task(
    client: Client, tmp_path: Path, batch: Any
) -> None:
    task_id = client.submit("add", a=1, b=2)
    with contextlib.closing(app_on(tmp_path, server="https://lab.example")) as app:
        rounds_of(app, client).dispatch([task_id])
    (job,) = jobs_of(batch, task_id)
    assert job["container"]["command"][-2:] == ["--server", "https://lab.example"]
    variables = {each["name"]: each["value"] for each in job["container"]["environment"]}
    passed = TaskTokens(client.store.secret()).read(variables["BACKBURNER_TASK_TOKEN"])
    assert passed is not None
    assert (passed.task_id, passed.until > time.time() * 1000) == (task_id, True)
    assert not any("tasks.db" in value for value in variables.values())


def test_a_server_without_a_scheme_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"aws_batch\.server"):
        app_on(tmp_path, server="lab.example").start()


@contextlib.contextmanager
def refusing(
    status: int,
    code: str,
    heard: list[dict[str, Any]] | None = None,
    *,
    only: Callable[[dict[str, Any]], bool] = lambda job: True,
) -> Iterator[str]:
    """A server that answers as Batch does when it refuses: moto has no quotas, and knows all credentials.

    Jobs that are not among the `only` ones are taken.
    """

    class Refusing(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if heard is not None:
                heard.append(said)
            if only(said):
                body = b'{"message": "No."}'
                self.send_response(status)
                self.send_header("x-amzn-ErrorType", code)
            else:
                body = json.dumps({"jobId": f"job of {said['jobName']}", "jobName": "x"}).encode()
                self.send_response(200)
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
