"""Fixtures for the tests of the client."""

from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import services
from tests.client.stage import Gates, Stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def gates(tmp_path: Path) -> Gates:
    return Gates(tmp_path / "gates")


@pytest.fixture(scope="session")
def legacy_python(pytestconfig: pytest.Config) -> Path:
    """An interpreter with an SDK of the 1.x line: BACKBURNER_TEST_LEGACY_PYTHON, or one made once."""
    if given := os.environ.get("BACKBURNER_TEST_LEGACY_PYTHON"):
        return Path(given)
    assert pytestconfig.cache is not None
    folder = pytestconfig.cache.mkdir("mcp1")
    ready, python = folder / "ready", folder / "bin" / "python"
    if not ready.exists():
        try:
            for command in (
                [sys.executable, "-m", "venv", str(folder)],
                [str(python), "-m", "pip", "install", "--quiet", "mcp==1.30.*"],
            ):
                subprocess.run(command, check=True, timeout=110, capture_output=True)
        except (subprocess.SubprocessError, OSError) as error:
            services.unavailable(f"mcp 1.x could not be installed: {error}")
        ready.touch()
    return python


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine, for which pytest has no way of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in names}
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**arguments), 100))
    return True
