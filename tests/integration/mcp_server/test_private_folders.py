"""What Backburner makes on disk is for its owner alone, whatever the umask says."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deployment import Deployment
from tests.integration.mcp_server.harness import connect, deploy


@pytest.fixture
def generous_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def deployment(tmp_path: Path, generous_umask: None) -> Iterator[Deployment]:
    """Its folder is not there yet, nor the ones above."""
    with deploy(tmp_path / "not" / "there" / "yet") as made:
        yield made


async def test_every_folder_that_is_made_is_for_its_owner_alone(
    deployment: Deployment, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir(mode=0o777)
    async with connect(deployment.stdio(), "2025", tasks=False) as peer:
        await peer.call("big", {"size": 10})
        await peer.call("slow", {"n": 1}, meta={"taskId": "t1"})
        (task,) = (await peer.tool("list_tasks", limit=1))["tasks"]
        await peer.tool("wait_for_task", task_id=task["task_id"], timeout_s=60)
    assert_all_private(tmp_path, kept)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o777


def assert_all_private(folder: Path, but: Path) -> None:
    found = [path for path in folder.rglob("*") if path != but]
    assert {"wake", "tasks", "artifacts", "data", "state"} <= {path.name for path in found}
    files = [path for path in found if not path.is_socket()]  # whose folder is private
    assert [path for path in files if open_to_others(path)] == []


def open_to_others(path: Path) -> bool:
    """Whether they may do anything with it; with a temporary file that is gone by now nobody can."""
    with contextlib.suppress(FileNotFoundError):
        return bool(stat.S_IMODE(path.stat().st_mode) & 0o077)
    return False
