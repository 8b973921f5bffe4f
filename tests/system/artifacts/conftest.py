"""S3-compatible storage: moto's server, one for the tests of a run, and a bucket for each test."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.aws import MotoServer
from tests.system.artifacts.hosts import Host

#: Makes a host by its name and its settings.
MakeHost = Callable[..., Host]


@pytest.fixture(scope="session")
def moto() -> Iterator[MotoServer]:
    server = MotoServer().start()
    yield server
    server.stop()


@pytest.fixture
def bucket(moto: MotoServer) -> str:
    """A new bucket."""
    name = f"lab-{uuid.uuid4().hex}"
    moto.client("s3").create_bucket(Bucket=name)
    return name


@pytest.fixture
def host(tmp_path: Path, moto: MotoServer, bucket: str) -> Iterator[MakeHost]:
    """Hosts that share a store and a bucket, and no folder."""
    with ExitStack() as stack:

        def make(name: str, **settings: str) -> Host:
            kept = {"artifacts__url": f"s3://{bucket}/lab/files", "artifacts__endpoint": moto.url}
            return stack.enter_context(Host(tmp_path, name, **{**kept, **settings}))

        yield make
