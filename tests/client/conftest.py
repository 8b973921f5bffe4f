"""Fixtures for the tests of the client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import services
from tests.client.gates import APP, Gates
from tests.deployment import Deployment
from tests.interop import environment


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with Deployment(tmp_path, (APP,)) as made:
        yield made


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
