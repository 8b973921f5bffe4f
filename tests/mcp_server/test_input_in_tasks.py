"""Tools that need something of their client, as tasks: on each framework, over each transport."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from tests.deployment import Deployment
from tests.mcp_server.harness import Peer, connect

pytestmark = pytest.mark.slow

ATTACHED = ("lowlevel", "mcpserver", "fastmcp")
TRANSPORTS = ("stdio", "http")
NAMES = {"Who?": "Ada", "Where?": "London", "When?": "Noon", "Your name?": "Ada"}
WHOLE_STORY = "first, Ada, London, Noon"


@pytest.fixture(params=ATTACHED)
def deployment(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Deployment]:
    """The server of input_server.py on the framework that is named, with a store of the test's own."""
    script = Path(__file__).with_name("input_server.py")
    settings, variables = {"mcp__patience_s": "60"}, {"SERVER_KIND": request.param}
    with Deployment(tmp_path, (script,), settings, variables) as made:
        yield made


@contextlib.asynccontextmanager
async def served(deployment: Deployment, transport: str) -> AsyncIterator[Any]:
    """What to connect to, again and again."""
    if transport == "stdio":
        yield deployment.stdio()
    else:
        with deployment.http() as server:
            yield server.url


async def answer_by_message(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"name": NAMES[params.message]})


def text_of(result: dict[str, Any]) -> str:
    text: str = result["content"][0]["text"]
    return text


async def questions(peer: Peer, task_id: str) -> dict[str, str]:
    """The keys of what the task asks, by message."""
    waiting = await peer.poll(task_id, "input_required")
    assert waiting["status"] == "input_required", waiting
    return {asked["params"]["message"]: key for key, asked in waiting["inputRequests"].items()}


async def give(peer: Peer, task_id: str, answers: dict[str, Any]) -> None:
    await peer.request("tasks/update", {"taskId": task_id, "inputResponses": answers})


def accepted(message: str) -> dict[str, Any]:
    return {"action": "accept", "content": {"name": NAMES[message]}}


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_input_that_a_tool_requires_is_asked_for_by_its_task_round_by_round(
    deployment: Deployment, transport: str
) -> None:
    async with served(deployment, transport) as server, connect(server, "2026") as peer:
        task_id = await peer.start("two_rounds")
        for round_ in ({"Who?"}, {"Where?", "When?"}):
            asked = await questions(peer, task_id)
            assert asked.keys() == round_
            await give(peer, task_id, {key: accepted(message) for message, key in asked.items()})
        done = await peer.poll(task_id)
        assert (done["status"], text_of(done["result"])) == ("completed", WHOLE_STORY)


async def test_a_refusal_and_a_reply_to_another_kind_of_request_reach_the_tool(
    deployment: Deployment,
) -> None:
    async with connect(deployment.stdio(), "2026") as peer:
        refused = await peer.start("two_rounds")
        for _ in range(2):
            asked = await questions(peer, refused)
            await give(peer, refused, {key: {"action": "decline"} for key in asked.values()})
        assert text_of((await peer.poll(refused))["result"]) == "first, decline, decline, decline"

        sampling = await peer.start("sample")
        waiting = await peer.poll(sampling, "input_required")
        ((key, request),) = waiting["inputRequests"].items()
        assert request["method"] == "sampling/createMessage"
        poem = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "A rose"}}
        await give(peer, sampling, {key: poem})
        assert text_of((await peer.poll(sampling))["result"]) == "A rose"


async def test_a_tool_that_asks_for_nothing_is_called_again_and_not_for_ever(deployment: Deployment) -> None:
    async with connect(deployment.stdio(), "2026") as peer:
        assert text_of((await peer.poll(await peer.start("not_yet")))["result"]) == "done"
        given_up = await peer.poll(await peer.start("never_content"))
        assert (given_up["status"], given_up["result"]["isError"]) == ("completed", True)
        assert "10 times" in text_of(given_up["result"])


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_a_client_without_tasks_is_asked_in_its_call(deployment: Deployment, era: str) -> None:
    async with connect(deployment.stdio(), era, tasks=False, elicit=answer_by_message) as peer:
        held = await peer.client.call_tool("two_rounds", {})
        assert held.content[0].text == WHOLE_STORY  # type: ignore[union-attr]


async def test_a_client_of_2025_is_asked_while_it_waits_for_its_task(deployment: Deployment) -> None:
    async with connect(deployment.stdio(), "2025", elicit=answer_by_message) as peer:
        result = await peer.request("tasks/result", {"taskId": await peer.start("two_rounds")})
        assert text_of(result) == WHOLE_STORY
        first = await peer.request("tasks/result", {"taskId": await peer.start("asks_first")})
        assert text_of(first) == "Ada"


@pytest.mark.parametrize("deployment", ["own", *ATTACHED], indirect=True)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_question_that_comes_when_the_client_is_gone_waits_for_the_next_one(
    deployment: Deployment, transport: str, tmp_path: Path
) -> None:
    async with served(deployment, transport) as server:
        async with connect(server, "2026") as first:
            task_id = await first.start("late", {"gate": str(tmp_path / "gate")})
        (tmp_path / "gate").touch()
        async with connect(server, "2026") as second:
            asked = await questions(second, task_id)
            await give(second, task_id, {asked["Who?"]: accepted("Who?")})
            assert text_of((await second.poll(task_id))["result"]) == "Ada"


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_answers_to_first_questions_are_there_when_an_attached_tool_begins(
    deployment: Deployment, transport: str
) -> None:
    async with served(deployment, transport) as server:
        async with connect(server, "2026") as peer:
            asked = await peer.call("asks_first")
            assert asked["resultType"] == "input_required"
            assert asked["inputRequests"].keys() == {"user"}
            created = await peer.call("asks_first", inputResponses={"user": accepted("Your name?")})
            assert created["resultType"] == "task"
            assert text_of((await peer.poll(created["taskId"]))["result"]) == "Ada"
        async with connect(server, "2026", tasks=False, elicit=answer_by_message) as plain:
            held = await plain.client.call_tool("asks_first", {})
            assert held.content[0].text == "Ada"  # type: ignore[union-attr]
