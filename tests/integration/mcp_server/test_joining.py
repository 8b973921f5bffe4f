"""A call that comes again joins the first, when nobody waits for that any more; and when not."""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from backburner.core.json_text import canonical
from backburner.mcp.transport.auth import hash_token
from backburner.store import open_store
from tests.deployment import Deployment
from tests.integration.mcp_server.harness import Peer, connect
from tests.services import wait_until
from tests.system.interop import environment

pytestmark = pytest.mark.slow

SERVER = environment.HERE / "ledger_server.py"
JOINED = "backburner/joined"


class Ledger:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def runs(self, name: str) -> int:
        file = self.folder / name
        return len(file.read_text().splitlines()) if file.exists() else 0

    def events(self, task_id: str) -> dict[str, Any]:
        with contextlib.closing(open_store(f"sqlite:///{self.folder}/tasks.db")) as store:
            return {event.signal: event.detail for event in store.events(task_id)}


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    settings = {"mcp__patience_s": "60", "mcp__attended_s": "2"}
    with Deployment(tmp_path, (SERVER,), settings, {"LEDGER": str(tmp_path)}) as made:
        yield made


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path)


@contextlib.asynccontextmanager
async def warm(deployment: Deployment, target: Any, era: str = "2026") -> AsyncIterator[Peer]:
    """A client without tasks, whose server has a runner ready."""
    async with connect(target, era, tasks=False) as peer:
        await peer.call("work", {"name": "warm", "seconds": 0}, meta={"backburner/new": True})
        yield peer


async def until(condition: Callable[[], bool]) -> None:
    assert await asyncio.to_thread(wait_until, condition)


async def stop(call: asyncio.Task[Any]) -> None:
    call.cancel()
    await asyncio.wait([call])


async def test_two_who_both_wait_are_two_tasks_unless_the_tool_shares_them(
    deployment: Deployment, ledger: Ledger
) -> None:
    async with warm(deployment, deployment.stdio()) as peer:
        async with asyncio.timeout(60):
            inputs = {"name": "two", "seconds": 1}
            await asyncio.gather(peer.call("work", inputs), peer.call("work", inputs))
            assert ledger.runs("two") == 2
            inputs = {"name": "one", "seconds": 1}
            both = await asyncio.gather(peer.call("shared", inputs), peer.call("shared", inputs))
            assert ledger.runs("one") == 1
            assert sorted(JOINED in each["_meta"] for each in both) == [False, True]
            # Who calls when it is over means it anew.
            assert JOINED not in (await peer.call("shared", inputs))["_meta"]
            assert ledger.runs("one") == 2


async def test_a_client_that_gives_up_without_a_word_joins_what_it_seems_to_wait_for(
    deployment: Deployment, ledger: Ledger
) -> None:
    # This client has the name of Python SDK 1, which says nothing when its timer runs out.
    deployment.settings |= {"queues": '{"cpu_standard": {"workers": 3}}'}
    async with warm(deployment, deployment.stdio(), "2025") as peer:
        inputs = {"name": "silent", "seconds": 12}
        # So soon it is one more of a batch, and not a second try.
        first, soon = [asyncio.ensure_future(peer.call("work", inputs)) for _ in range(2)]
        await until(lambda: ledger.runs("silent") == 2)
        await peer.call("work", {"name": "longer than any timer", "seconds": 3.5})
        again = await peer.call("work", inputs)
        assert JOINED in again["_meta"]
        assert again["structuredContent"] == {"worked": "silent"}
        assert [JOINED in (await each)["_meta"] for each in (first, soon)] == [False, False]
    assert ledger.runs("silent") == 2


async def test_a_stop_cancels_or_detaches_as_the_tool_says(deployment: Deployment, ledger: Ledger) -> None:
    deployment.settings |= {"supervisor__cancel_grace_s": "30"}  # in which the tool says that it was stopped
    async with warm(deployment, deployment.stdio()) as peer:
        for tool, name, seconds in (("work", "killed", 60), ("alone", "left", 3)):
            call = asyncio.ensure_future(peer.call(tool, {"name": name, "seconds": seconds}))
            await until(lambda name=name: ledger.runs(name) == 1)  # type: ignore[misc]
            await stop(call)
        await until((ledger.folder / "killed.killed").exists)
        await until((ledger.folder / "left.done").exists)
        # That tool's calls never join.
        assert JOINED not in (await peer.call("alone", {"name": "left", "seconds": 3}))["_meta"]


async def test_what_one_owner_left_behind_no_other_owner_joins(
    deployment: Deployment, ledger: Ledger
) -> None:
    tokens = {"alice": "token-of-alice", "bob": "token-of-bob"}
    file = ledger.folder / "tokens"
    file.write_text("".join(f"{name} {hash_token(token)}\n" for name, token in tokens.items()))
    file.chmod(0o600)
    deployment.settings |= {"http__auth__tokens": str(file), "mcp__on_cancel": "detach"}
    inputs = {"name": "hers", "seconds": 3}
    with deployment.http() as server:
        async with (
            connect(server.url, "2025", tasks=False, token=tokens["alice"]) as alice,
            connect(server.url, "2025", tasks=False, token=tokens["bob"]) as bob,
        ):
            call = asyncio.ensure_future(alice.call("work", inputs))
            await until(lambda: ledger.runs("hers") == 1)
            await stop(call)  # which ends no task of this server
            his = await bob.call("work", inputs)
            assert (JOINED in his["_meta"], ledger.runs("hers")) == (False, 2)
            hers = await alice.call("work", inputs)
            assert (JOINED in hers["_meta"], ledger.runs("hers")) == (True, 2)


@pytest.mark.whole
async def test_a_call_whose_http_connection_was_closed_goes_on_and_is_joined(
    deployment: Deployment, ledger: Ledger
) -> None:
    with deployment.http() as server:
        for era in ("2025", "2026"):
            inputs = {"name": era, "seconds": 3}
            async with warm(deployment, server.url, era) as peer:
                call = asyncio.ensure_future(peer.call("work", inputs))
                await until(lambda era=era: ledger.runs(era) == 1)  # type: ignore[misc]
                if era == "2026":
                    await stop(call)  # there it closes the stream; with the session, all streams are closed
            await asyncio.wait([call])
            async with connect(server.url, era, tasks=False) as peer:
                again = await peer.call("work", inputs)
            assert (again["structuredContent"], ledger.runs(era)) == ({"worked": era}, 1)
            joined = again["_meta"][JOINED]
            await until(lambda joined=joined: {"given_up", "joined"} <= ledger.events(joined).keys())  # type: ignore[misc]


@pytest.mark.whole
async def test_the_call_of_a_killed_server_is_joined_when_nobody_renews_it(
    deployment: Deployment, ledger: Ledger
) -> None:
    inputs = {"name": "orphan", "seconds": 12}
    inputs_hash = hashlib.sha256(canonical(inputs).encode()).hexdigest()
    with deployment.http() as server:
        with contextlib.suppress(ExceptionGroup):  # the client's own, of a server that is killed
            async with connect(server.url, "2026", tasks=False, check=False) as peer:
                call = asyncio.ensure_future(peer.call("work", inputs))
                await until(lambda: ledger.runs("orphan") == 1)
                with contextlib.closing(open_store(f"sqlite:///{ledger.folder}/tasks.db")) as store:
                    await until(store.has_calls)
                server.kill()
                await asyncio.wait([call])
        server.start()
        with contextlib.closing(open_store(f"sqlite:///{ledger.folder}/tasks.db")) as store:
            await until(lambda: not store.calls_like("local", "work", inputs_hash)[0].is_attended)
        async with connect(server.url, "2026", tasks=False) as peer:
            again = await peer.call("work", inputs)
    assert (again["structuredContent"], ledger.runs("orphan")) == ({"worked": "orphan"}, 1)
    assert JOINED in again["_meta"]


@pytest.mark.whole
async def test_explicit_tasks_are_joined_once_their_client_is_not_heard_of(
    deployment: Deployment, ledger: Ledger
) -> None:
    deployment.settings |= {"mcp__attended_s": "6"}
    inputs = {"name": "explicit", "seconds": 60}
    async with connect(deployment.stdio(), "2026") as peer:
        first, second = await peer.start("work", inputs), await peer.start("work", inputs)
        assert first != second
        with contextlib.closing(open_store(f"sqlite:///{ledger.folder}/tasks.db")) as store:
            await until(store.has_calls)
        joined = await peer.call("work", inputs)
        assert joined["taskId"] in (first, second)
        assert joined["_meta"][JOINED] == joined["taskId"]
        new = await peer.start("work", inputs, meta={"backburner/new": True})
        assert new not in (first, second)
