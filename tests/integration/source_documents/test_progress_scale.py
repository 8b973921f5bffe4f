"""One progress token has one scale for its whole life, and its progress grows with each notification."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.deployment import Deployment
from tests.integration.mcp_server.harness import Peer, connect
from tests.services import until

APP = Path(__file__).with_name("numbers_app.py")
ERAS = pytest.mark.parametrize("era", ["2025", "2026"])
Step = dict[str, Any]


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    # Held for a moment and then handed out, to a client that is told how it goes on.
    settings = {"mcp__client_patience": '{"mcp": 6}'}
    with Deployment(tmp_path, (APP,), settings) as made:
        yield made


class Telling:
    """A tool that says step after step, and what the client hears of it."""

    def __init__(self, peer: Peer, folder: Path) -> None:
        self.peer, self.folder = peer, folder
        self.answer: dict[str, Any] = {}

    @property
    def heard(self) -> list[dict[str, Any]]:
        return self.peer.wire.of("notifications/progress")

    async def hears(self, message: str) -> dict[str, Any]:
        """What was told with that message."""
        await until(lambda: any(said.get("message") == message for said in self.heard))
        return next(said for said in self.heard if said.get("message") == message)

    def go_on(self, step: int) -> None:
        (self.folder / str(step)).touch()

    def check(self, total: float) -> None:
        """All that was heard has one token and one scale, and grows."""
        assert len({said["progressToken"] for said in self.heard}) == 1
        values = [said["progress"] for said in self.heard]
        assert values == sorted(set(values))
        totals = [said.get("total") for said in self.heard]
        known = totals[totals.index(total) :]
        assert set(known) == {total}
        # Before the tool has said how far it is, there is no total yet, and next to nothing is done.
        assert set(totals[: -len(known)]) <= {None}
        assert all(value < 0.001 for value in values[: -len(known)])


@asynccontextmanager
async def telling(
    peer: Peer, tool: str, steps: list[Step], folder: Path, **params: Any
) -> AsyncIterator[Telling]:
    """The call of a tool, as long as its last step is awaited."""
    said = Telling(peer, folder)

    async def call() -> None:
        said.answer = await peer.call(tool, {"steps": steps, "folder": str(folder)}, **params)

    calling = asyncio.ensure_future(call())
    try:
        yield said
    finally:
        for number in range(len(steps)):
            said.go_on(number)
        await calling
        job = (said.answer.get("data") or said.answer.get("task") or {}).get("job_id")
        if job is not None:
            await peer.tool("wait_for_task", task_id=job)


async def take_notifications(peer: Peer) -> None:
    """Poll for a job: only clients that do are notified of jobs that their calls became."""
    await peer.request("tools/poll_result", {"job_id": "none"})


def numbers(said: dict[str, Any]) -> tuple[Any, ...]:
    return said["progress"], said["total"], said["percentage"]


@pytest.mark.whole(but_first=1)
@ERAS
async def test_a_count_is_told_as_the_tool_gives_it_held_and_handed_out(
    deployment: Deployment, tmp_path: Path, era: str
) -> None:
    steps = [
        {"current": 300, "total": 1000, "message": "a", "stage": "extraction"},
        {"current": 600, "total": 1000, "message": "b"},
    ]
    async with connect(deployment.stdio(), era, tasks=False) as peer:
        await take_notifications(peer)
        async with telling(peer, "tell", steps, tmp_path, meta={"progressToken": "mine"}) as said:
            assert numbers(held := await said.hears("a")) == (300, 1000, 30)
            assert held["context"] == held["_meta"]["context"] == {"stage": "extraction"}
            await until(lambda: bool(said.answer))
            assert said.answer["data"]["status"] == "running"
            said.go_on(0)
            job = await said.hears("b")
            assert numbers(job) == (600, 1000, 60)
            assert job["job_id"] == said.answer["data"]["job_id"]
        said.check(1000)
        assert said.heard[0]["progressToken"] == said.answer["_meta"]["progressToken"] == "mine"


@pytest.mark.whole(but_first=1)
@ERAS
async def test_a_percentage_is_told_as_a_part_of_one_held_and_handed_out(
    deployment: Deployment, tmp_path: Path, era: str
) -> None:
    steps = [{"percent": 25, "message": "a"}, {"percent": 50, "message": "b"}]
    async with connect(deployment.stdio(), era, tasks=False) as peer:
        await take_notifications(peer)
        async with telling(peer, "tell", steps, tmp_path, meta={"progressToken": 7}) as said:
            assert numbers(await said.hears("a")) == (0.25, 1, 25)
            await until(lambda: bool(said.answer))
            said.go_on(0)
            assert numbers(await said.hears("b")) == (0.5, 1, 50)
        said.check(1)


@pytest.mark.whole(but_first=1)
@ERAS
async def test_a_job_without_a_token_of_its_client_is_told_as_the_documents_have_it(
    deployment: Deployment, tmp_path: Path, era: str
) -> None:
    steps = [{"current": 300, "total": 1000, "message": "a"}, {"percent": 60, "message": "b"}]
    async with connect(deployment.stdio(), era, tasks=False) as peer:
        async with telling(peer, "tell_job", steps, tmp_path) as said:
            assert numbers(told := await said.hears("a")) == (0.3, 1, 30)
            said.go_on(0)
            assert numbers(await said.hears("b")) == (0.6, 1, 60)
            assert told["progressToken"] == said.answer["_meta"]["progressToken"]
        said.check(1)


async def test_a_tool_that_counts_anew_stays_on_the_scale_that_it_began_with(
    deployment: Deployment, tmp_path: Path
) -> None:
    steps: list[Step] = [
        {"message": "so far nothing is known"},
        {"current": 5, "total": 10, "message": "a"},
        {"message": "b"},
        {"current": 1, "total": 1000, "message": "back at the beginning"},
        {"current": 600, "total": 1000, "message": "c"},
        {"percent": 80, "message": "d"},
    ]
    async with connect(deployment.stdio(), "2025", tasks=False) as peer:
        async with telling(peer, "tell_job", steps, tmp_path, meta={"progressToken": "mine"}) as said:
            assert (await said.hears("so far nothing is known"))["progress"] < 0.001
            heard = []
            for number, message in enumerate(["a", "b", "back at the beginning", "c", "d"]):
                said.go_on(number)
                heard.append((await said.hears(message))["progress"])
            assert heard == pytest.approx([5, 5, 5, 6, 8], abs=1e-6)
        said.check(10)


async def test_a_task_of_2025_tells_its_percentage_and_its_context(
    deployment: Deployment, tmp_path: Path
) -> None:
    steps = [
        {"current": 300, "total": 1000, "message": "a", "stage": "extraction"},
        {"percent": 60, "message": "b", "stage": "analysis"},
    ]
    async with connect(deployment.stdio(), "2025") as peer:
        async with telling(
            peer, "tell", steps, tmp_path, meta={"progressToken": "mine"}, task={"ttl": 60_000}
        ) as said:
            assert numbers(told := await said.hears("a")) == (300, 1000, 30)
            assert told["context"] == told["_meta"]["context"] == {"stage": "extraction"}
            said.go_on(0)
            assert numbers(told := await said.hears("b")) == (600, 1000, 60)
            assert told["context"] == {"stage": "analysis"}
        said.check(1000)
        await peer.request("tasks/result", {"taskId": said.answer["task"]["taskId"]})
