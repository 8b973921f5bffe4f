"""Fixtures for the tests of the source documents."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deployment import Deployment


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with Deployment(tmp_path) as made:
        yield made
