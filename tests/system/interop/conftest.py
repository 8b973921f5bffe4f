"""Fixtures for the tests with clients and suites of others."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deployment import Deployment
from tests.integration.mcp_server.harness import deploy


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """A store for all tests of a module."""
    return deploy(tmp_path_factory.mktemp("interop"), supervisor__idle_exit_s="0")


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with deploy(tmp_path) as made:
        yield made
