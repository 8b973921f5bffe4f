"""Fixtures for the tests of the client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import services
from tests.deployment import Deployment
from tests.integration.client.gates import APP, Gates
from tests.integration.mcp_server.lasting import Lasting
from tests.system.interop import environment


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with Deployment(tmp_path, (APP,)) as made:
        yield made


@pytest.fixture(scope="session")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lasting]:
    """The deployments that tests share."""
    with Lasting(tmp_path_factory.mktemp("lasting")) as made:
        yield made


@pytest.fixture
def shared(lasting: Lasting) -> Iterator[Deployment]:
    """A store that other tests use as well."""
    with lasting.deployment(APP) as made:
        yield made


@pytest.fixture
def url(lasting: Lasting, shared: Deployment) -> str:
    """The address of a server over HTTP on that store, which other tests use as well."""
    return lasting.url(shared)


@pytest.fixture
def gates(tmp_path: Path) -> Gates:
    return Gates(tmp_path / "gates")


@pytest.fixture(scope="session")
def legacy_python() -> Path:
    """An interpreter with an SDK of the 1.x line."""
    try:
        return environment.python("mcp1")
    except environment.Unavailable as error:
        services.unavailable(str(error))
