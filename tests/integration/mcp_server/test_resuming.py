"""A server that starts takes up what waits in its store, before any client says a word."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator

import pytest

from backburner.core.lifecycle import State
from backburner.core.times import SystemClock
from backburner.store import open_store
from backburner.store.protocol import Store
from tests.contracts.store.base import new_task
from tests.deployment import Deployment
from tests.integration.mcp_server.harness import KINDS, SCRIPT, connect
from tests.services import wait_until

#: Each framework over one transport, in turn; `make test-whole` has the others.
PAIRS = [("own", "stdio"), ("lowlevel", "http"), ("mcpserver", "stdio"), ("fastmcp", "http")]
OTHERS = [
    (kind, transport) for kind in KINDS for transport in ("stdio", "http") if (kind, transport) not in PAIRS
]


@contextlib.contextmanager
def store_of(deployment: Deployment) -> Iterator[Store]:
    with contextlib.closing(open_store(f"sqlite:///{deployment.folder}/tasks.db")) as store:
        yield store


@contextlib.contextmanager
def silent_server(deployment: Deployment, transport: str) -> Iterator[None]:
    """A server that runs, and to which nobody says anything."""
    if transport == "http":
        with deployment.http():
            yield
        return
    with subprocess.Popen(
        deployment.command("stdio"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=deployment.environment
    ) as server:
        try:
            yield
        finally:
            server.terminate()


def submit_slow(store: Store) -> str:
    """A task that waits, as a server that has ended leaves it."""
    target = f"file:{SCRIPT}#surfaces"
    new = new_task(SystemClock(), {"n": 1}, tool_name="slow", target=target, queue="cpu_standard")
    return store.submit(new).task.task_id


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize(
    ("deployment", "transport"),
    [*PAIRS, *OTHERS],
    indirect=["deployment"],
)
def test_a_server_that_starts_takes_up_what_waits(deployment: Deployment, transport: str) -> None:
    with store_of(deployment) as store:
        task_id = submit_slow(store)
        with silent_server(deployment, transport):
            assert wait_until(lambda: store.head(task_id).state is State.SUCCEEDED)


async def test_a_server_that_starts_takes_up_what_a_dead_supervisor_left(deployment: Deployment) -> None:
    async with connect(deployment.stdio(), "2026") as peer:
        task_id = await peer.start("slow", {"n": 100_000})
        await peer.poll(task_id, "working")
    with store_of(deployment) as store:
        assert wait_until(lambda: store.head(task_id).state is State.RUNNING)
        supervisor = deployment.supervisor()
        assert supervisor is not None
        supervisor.kill()
        with silent_server(deployment, "http"):
            assert wait_until(lambda: store.head(task_id).attempt == 2)


async def test_a_server_that_starts_over_a_store_without_work_starts_nobody(deployment: Deployment) -> None:
    with store_of(deployment):
        pass
    async with connect(deployment.stdio(), "2025") as peer:
        await peer.request("ping")
    assert deployment.supervisor() is None


async def test_a_store_that_cannot_be_opened_does_not_keep_a_server_from_starting(
    deployment: Deployment,
) -> None:
    (deployment.folder / "tasks.db").write_bytes(b"no database " * 1000)
    async with connect(deployment.stdio(), "2026") as peer:
        assert (await peer.request("tools/list"))["tools"]
