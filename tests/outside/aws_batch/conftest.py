"""AWS Batch by moto's server: the API is there, and a test plays the computers that run the jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.aws import CREDENTIALS, MotoServer

#: What each of our queues is there.
TABLES = {"job_queue": {"*": "lab"}, "job_definition": {"*": "backburner"}}


@pytest.fixture(scope="session")
def moto() -> Iterator[MotoServer]:
    server = MotoServer().start()
    set_up(server)
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def own_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def batch(moto: MotoServer) -> Any:
    """A client of Batch for the test itself."""
    return moto.client("batch")


def set_up(server: MotoServer) -> None:
    """A queue `lab` and a job definition `backburner`; jobs stay `SUBMITTED` until somebody looks often."""
    waits = {"model_name": "batch::job", "transition": {"progression": "manual", "times": 10**6}}
    server.configure("state-manager/set-transition", json.dumps(waits).encode())
    role = server.client("iam").create_role(RoleName="batch", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    batch = server.client("batch")
    made = batch.create_compute_environment(
        computeEnvironmentName="lab", type="UNMANAGED", state="ENABLED", serviceRole=role
    )
    order = [{"order": 1, "computeEnvironment": made["computeEnvironmentArn"]}]
    batch.create_job_queue(jobQueueName="lab", state="ENABLED", priority=1, computeEnvironmentOrder=order)
    batch.register_job_definition(
        jobDefinitionName="backburner",
        type="container",
        containerProperties={"image": "backburner", "vcpus": 1, "memory": 512, "command": ["false"]},
    )


def end_at_once(server: MotoServer, *, yes: bool) -> None:
    """Whether jobs are over as soon as they are submitted, with nothing run."""
    server.configure("config", json.dumps({"batch": {"use_docker": not yes}}).encode())
