"""Tools that need something of their client, as tasks: on each framework, over each transport.

All tests of a framework share a server over HTTP. Over stdio, where a server lives as long as its client, one
framework stands for all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from tests.deployment import Deployment
from tests.integration.mcp_server.harness import Peer, connect
from tests.system.interop.serving import serving

pytestmark = pytest.mark.slow

ATTACHED = ("lowlevel", "mcpserver", "fastmcp")
OVER_STDIO = "mcpserver over stdio"
NAMES = {"Who?": "Ada", "Where?": "London", "When?": "Noon", "Your name?": "Ada"}
WHOLE_STORY = "first, Ada, London, Noon"


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], tuple[Deployment, str]]]:
    """The server of input_server.py on the framework that is named, and its address; started once."""
    script = Path(__file__).with_name("input_server.py")
    settings = {"mcp__patience_s": "60", "supervisor__idle_exit_s": "0"}
    with contextlib.ExitStack() as stack:

        @cache
        def serve(kind: str) -> tuple[Deployment, str]:
            folder = tmp_path_factory.mktemp("input")
            deployment = Deployment(folder, (script,), settings, {"SERVER_KIND": kind})
            return deployment, stack.enter_context(serving(deployment))

        yield serve


@pytest.fixture(params=ATTACHED)
def server(serve: Callable[[str], tuple[Deployment, str]], request: pytest.FixtureRequest) -> Any:
    """What to connect to, again and again."""
    deployment, url = serve(request.param.partition(" ")[0])
    return deployment.stdio() if request.param == OVER_STDIO else url


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


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize("server", [*ATTACHED, OVER_STDIO], indirect=True)
async def test_the_input_that_a_tool_requires_is_asked_for_by_its_task_round_by_round(server: Any) -> None:
    async with connect(server, "2026") as peer:
        task_id = await peer.start("two_rounds")
        for round_ in ({"Who?"}, {"Where?", "When?"}):
            asked = await questions(peer, task_id)
            assert asked.keys() == round_
            await give(peer, task_id, {key: accepted(message) for message, key in asked.items()})
        done = await peer.poll(task_id)
        assert (done["status"], text_of(done["result"])) == ("completed", WHOLE_STORY)


async def test_a_refusal_and_a_reply_to_another_kind_of_request_reach_the_tool(server: Any) -> None:
    async with connect(server, "2026") as peer:
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


@pytest.mark.whole(but_first=1)
async def test_a_tool_that_asks_for_nothing_is_called_again_and_not_for_ever(server: Any) -> None:
    async with connect(server, "2026") as peer:
        assert text_of((await peer.poll(await peer.start("not_yet")))["result"]) == "done"
        given_up = await peer.poll(await peer.start("never_content"))
        assert (given_up["status"], given_up["result"]["isError"]) == ("completed", True)
        assert "10 times" in text_of(given_up["result"])


@pytest.mark.whole(but_first=3)
@pytest.mark.parametrize("era", ["2025", "2026"])
@pytest.mark.parametrize("server", [*ATTACHED, OVER_STDIO], indirect=True)
async def test_a_client_without_tasks_is_asked_in_its_call(server: Any, era: str) -> None:
    async with connect(server, era, tasks=False, elicit=answer_by_message) as peer:
        held = await peer.client.call_tool("two_rounds", {})
        assert held.content[0].text == WHOLE_STORY  # type: ignore[union-attr]


@pytest.mark.parametrize("server", [*ATTACHED, OVER_STDIO], indirect=True)
async def test_a_client_of_2025_is_asked_while_it_waits_for_its_task(server: Any) -> None:
    async with connect(server, "2025", elicit=answer_by_message) as peer:
        result = await peer.request("tasks/result", {"taskId": await peer.start("two_rounds")})
        assert text_of(result) == WHOLE_STORY
        first = await peer.request("tasks/result", {"taskId": await peer.start("asks_first")})
        assert text_of(first) == "Ada"


@pytest.mark.whole(but_first=2)
@pytest.mark.parametrize("server", ["own", *ATTACHED, OVER_STDIO], indirect=True)
async def test_a_question_that_comes_when_the_client_is_gone_waits_for_the_next_one(
    server: Any, tmp_path: Path
) -> None:
    async with connect(server, "2026") as first:
        task_id = await first.start("late", {"gate": str(tmp_path / "gate")})
    (tmp_path / "gate").touch()
    async with connect(server, "2026") as second:
        asked = await questions(second, task_id)
        await give(second, task_id, {asked["Who?"]: accepted("Who?")})
        assert text_of((await second.poll(task_id))["result"]) == "Ada"


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize("server", [*ATTACHED, OVER_STDIO], indirect=True)
async def test_the_answers_to_first_questions_are_there_when_an_attached_tool_begins(server: Any) -> None:
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
