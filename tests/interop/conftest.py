"""Fixtures for the tests with clients and suites of others."""

import pytest

from tests.mcp_server.harness import Deployment


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """A store for all tests of a module."""
    return Deployment(tmp_path_factory.mktemp("interop"), settings={"idle_exit_s": "0"})
