"""Fixtures for the tests of the MCP server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deployment import Deployment
from tests.integration.mcp_server.harness import SCRIPT, deploy
from tests.integration.mcp_server.lasting import Lasting

GUARDED = Path(__file__).with_name("guarded.py")


@pytest.fixture
def deployment(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Deployment]:
    """A store of the test's own; parametrise it indirectly to choose the framework."""
    with deploy(tmp_path, getattr(request, "param", "own")) as made:
        yield made


@pytest.fixture(scope="session")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lasting]:
    """The deployments that tests share."""
    with Lasting(tmp_path_factory.mktemp("lasting")) as made:
        yield made


@pytest.fixture
def shared(lasting: Lasting, request: pytest.FixtureRequest) -> Iterator[Deployment]:
    """A store that other tests use as well; parametrise it indirectly to choose the framework."""
    with lasting.deployment(SCRIPT, getattr(request, "param", "own")) as made:
        yield made


@pytest.fixture
def server(lasting: Lasting, shared: Deployment) -> str:
    """The address of a server over HTTP on that store, which other tests use as well."""
    return lasting.url(shared)


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Deployment]:
    """The server of guarded.py on a store of the test's own."""
    with Deployment(tmp_path, (GUARDED,), {"mcp__patience_s": "60"}) as made:
        yield made


@pytest.fixture
def shared_guarded(lasting: Lasting) -> Iterator[Deployment]:
    """The server of guarded.py on a store that other tests use as well."""
    with lasting.deployment(GUARDED) as made:
        yield made
