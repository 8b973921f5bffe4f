"""A local engine for each test: an app with its supervisor; all its processes are gone afterwards."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from backburner.testing import contract_app
from tests.engine.local import Local, running

StartLocal = Callable[..., Local]


@pytest.fixture
def start_local(tmp_path: Path, run_directory: str) -> Iterator[StartLocal]:
    """Start an app with the suite's tools on a new store: `start_local(supervisor={"heartbeat_s": …})`."""
    with contextlib.ExitStack() as stack:

        def start(*, supervisor: Mapping[str, Any] | None = None, **settings: Any) -> Local:
            given = {
                "store": f"sqlite:///{tmp_path}/tasks.db",
                "supervisor": {"keeper_interval_s": 0.2, **(supervisor or {})},
                **settings,
            }
            return stack.enter_context(running(contract_app(**given)))

        yield start


@pytest.fixture
def local(start_local: StartLocal) -> Local:
    return start_local()
