"""AWS Batch by moto's server, which has the API, and by computers of ours, which run the jobs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.aws import CREDENTIALS, MotoServer

#: So many jobs run at once in queues of Batch.
ROOM = {"lab": 2, "single": 1}
#: A queue that has no room for any job.
FULL = "full"
#: The variable with which botocore is told where Batch is.
ENDPOINT = "AWS_ENDPOINT_URL_BATCH"
#: What each of our queues is there, unless the jobs are to run.
TABLES = {"job_queue": {"*": FULL}, "job_definition": {"*": "backburner"}}


@pytest.fixture(scope="session")
def moto(run_directory: str) -> Iterator[MotoServer]:
    server = _with_computers().start()
    set_up(server)
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def own_credentials(monkeypatch: pytest.MonkeyPatch, moto: MotoServer) -> None:
    for name, value in {**CREDENTIALS, ENDPOINT: moto.url}.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def batch(moto: MotoServer) -> Any:
    """A client of Batch for the test itself."""
    return moto.client("batch")


def _with_computers() -> MotoServer:
    program = f"from tests.system.outside.aws_batch.compute import serve; serve({ROOM})"
    # A container has `backburner` on its path, and nothing of what the tests are told.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    names = ("HOME", "PYTHONPATH", "PYDANTIC_DISABLE_PLUGINS", "TEST_RUN_DIRECTORY")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    return MotoServer([sys.executable, "-c", program], PATH=path, **kept)


def set_up(server: MotoServer) -> None:
    """Queues with room and without, and a job definition `backburner`; jobs go on by themselves alone."""
    waits = {"model_name": "batch::job", "transition": {"progression": "manual", "times": 10**6}}
    server.configure("state-manager/set-transition", json.dumps(waits).encode())
    role = server.client("iam").create_role(RoleName="batch", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    batch = server.client("batch")
    made = batch.create_compute_environment(
        computeEnvironmentName="lab", type="UNMANAGED", state="ENABLED", serviceRole=role
    )
    order = [{"order": 1, "computeEnvironment": made["computeEnvironmentArn"]}]
    for name in (*ROOM, FULL):
        batch.create_job_queue(jobQueueName=name, state="ENABLED", priority=1, computeEnvironmentOrder=order)
    define(batch, "backburner")


def define(batch: Any, name: str, **variables: str) -> None:
    """A job definition whose container has these variables."""
    environment = [{"name": key, "value": value} for key, value in variables.items()]
    container = {"image": "backburner", "vcpus": 1, "memory": 512, "command": ["false"]}
    batch.register_job_definition(
        jobDefinitionName=name,
        type="container",
        containerProperties={**container, "environment": environment},
    )


def end_at_once(server: MotoServer, *, yes: bool) -> None:
    """Whether jobs are over as soon as they are submitted, with nothing run."""
    server.configure("config", json.dumps({"batch": {"use_docker": not yes}}).encode())
