"""Fixtures for the tests of the MCP server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deployment import Deployment
from tests.mcp_server.harness import deploy


@pytest.fixture
def deployment(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Deployment]:
    """A store of the test's own; parametrise it indirectly to choose the framework."""
    with deploy(tmp_path, getattr(request, "param", "own")) as made:
        yield made


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Deployment]:
    """The server of guarded.py on a store of the test's own."""
    script = Path(__file__).with_name("guarded.py")
    with Deployment(tmp_path, (script,), {"mcp__patience_s": "60"}) as made:
        yield made
