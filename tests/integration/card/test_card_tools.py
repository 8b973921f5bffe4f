"""The server's side of the card: who is offered it, how its calls are answered, and what its tools give."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from tests.deployment import Deployment
from tests.integration.card.chat import MEDIA_TYPE, UI, Connection, connected
from tests.integration.card.own_pages import OWN
from tests.integration.mcp_server.harness import connect, deploy
from tests.services import wait_until

CARD = "ui://backburner/task-card.html"
LOOK, FIND, CANCEL, ANSWER, FILE, TELL = (
    f"backburner_card_{verb}" for verb in ("look", "find", "cancel", "answer", "file", "tell")
)
UNKNOWN = "tsk_" + "0" * 36


def page_of(tool: dict[str, Any]) -> Any:
    return ((tool.get("_meta") or {}).get("ui") or {}).get("resourceUri")


def finished(server: Connection, name: str, **arguments: Any) -> str:
    """The task of a call that is over."""
    task_id: str = server.hand_out(name, **arguments)["_meta"]["backburner/task"]
    assert wait_until(lambda: look(server, task_id)["finished"], within=60)
    return task_id


def look(server: Connection, task_id: str, **more: Any) -> dict[str, Any]:
    seen: dict[str, Any] = server.call(LOOK, task_id=task_id, **more)["structuredContent"]
    return seen


def error_of(result: dict[str, Any]) -> tuple[str, str]:
    assert result["isError"]
    error = result["structuredContent"]["error"]
    return error["code"], error["message"]


@pytest.mark.parametrize("era", ["2025", "2026"])
def test_who_declares_pages_gets_the_card_and_who_does_not_sees_nothing_of_it(url: str, era: str) -> None:
    with (
        connected(url, era, token="ann") as with_pages,
        connected(url, era, token="ann", shows_pages=False) as without,
    ):
        listed = with_pages.tools()
        assert {name for name, tool in listed.items() if page_of(tool) == CARD} == {
            "relax",
            "typed",
            "ask",
            "asks_first",
            "ask_with_link",
            "hostile",
            "bar",
            "hold",
            "long_line",
            "large",
        }
        for name in (LOOK, FIND, CANCEL, ANSWER, FILE, TELL):
            assert listed[name]["_meta"] == {"ui": {"visibility": ["app"]}}
        assert ["outputSchema" in listed[name] for name in ("typed", "hold")] == [False, True]
        (content,) = with_pages.ask("resources/read", {"uri": CARD})["contents"]
        assert (content["mimeType"], content["uri"]) == (MEDIA_TYPE, CARD)
        assert content["text"].startswith("<!doctype html>")
        assert "csp" not in content["_meta"]["ui"]
        assert CARD in [one["uri"] for one in with_pages.ask("resources/list")["resources"]]

        plain = without.tools()
        assert not any(name.startswith("backburner_card") or page_of(plain[name]) for name in plain)
        assert "outputSchema" in plain["typed"]
        assert without.ask("resources/list")["resources"] == []
        with pytest.raises(MCPError, match="Unknown tool"):
            without.call(LOOK, task_id=UNKNOWN)


def test_a_client_that_has_the_extension_without_html_has_no_card(url: str) -> None:
    with connected(url, token="ann", media_types=["text/uri-list"]) as other:
        assert not any(page_of(tool) for tool in other.tools().values())


@pytest.mark.parametrize("era", ["2025", "2026"])
def test_a_call_is_answered_with_its_result_and_the_task_of_its_card(url: str, era: str) -> None:
    with connected(url, era, token="ann") as ann:
        result = ann.call("typed", n=int(era))
        assert result["structuredContent"] == {"n": int(era)}
        assert look(ann, result["_meta"]["backburner/result-of"])["tool"] == "typed"
        assert ann.call("hold")["structuredContent"] == {"held": True}
        assert ann.call("plain")["content"][0]["text"] == "plain"


@pytest.mark.parametrize("name", ["relax", "typed"])
def test_a_handle_is_short_and_says_what_to_call(ann: Connection, name: str) -> None:
    handle = ann.hand_out(name)
    task_id = handle["_meta"]["backburner/task"]
    assert not handle["isError"]
    assert handle["structuredContent"]["data"]["job_id"] == task_id
    words = handle["content"][-1]["text"]
    assert task_id in words
    assert words.endswith("For its result, call wait_for_task with this task_id.")
    assert len(words) < 400
    ann.call(CANCEL, task_id=task_id)


async def test_a_client_with_tasks_of_its_own_gets_these_and_keeps_what_is_promised(url: str) -> None:
    pages = {"mimeTypes": [MEDIA_TYPE]}
    async with connect(url, "2026", token="ann", extensions={UI: pages}) as peer:
        tools = {tool["name"]: tool for tool in (await peer.request("tools/list"))["tools"]}
        assert page_of(tools["typed"]) == CARD
        assert "outputSchema" in tools["typed"]
        done = await peer.poll(await peer.start("typed", {"n": 5}))
        assert done["result"]["structuredContent"] == {"n": 5}


def test_a_tool_with_a_page_of_its_author_s_keeps_it(tmp_path: Path) -> None:
    program = Path(__file__).with_name("own_pages.py")
    with (
        Deployment(tmp_path, (program,), {"mcp__patience_s": "60"}) as made,
        made.http() as server,
        connected(server.url) as host,
    ):
        result = host.call("chart")  # before anything was listed
        assert (result["content"][0]["text"], page_of(host.tools()["chart"])) == (
            "chart",
            OWN["ui"]["resourceUri"],
        )
        assert host.tools()["chart"]["_meta"]["ui"] == OWN["ui"]
        assert page_of(host.tools()["table"]) == CARD
        assert host.tools()["by_app"]["_meta"]["ui"] == {"visibility": ["app"], "resourceUri": CARD}
        assert "backburner/result-of" in host.call("table")["_meta"]


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize("kind", ["lowlevel", "fastmcp"])
async def test_every_framework_serves_the_card_also_over_stdio(tmp_path: Path, kind: str) -> None:
    pages = {UI: {"mimeTypes": [MEDIA_TYPE]}}
    with deploy(tmp_path, kind) as made:
        async with connect(made.stdio(), "2026", tasks=False, extensions=pages) as peer:
            tools = {tool["name"]: tool for tool in (await peer.request("tools/list"))["tools"]}
            assert [name for name in ("slow", "fast", "hold") if page_of(tools[name])] == ["slow", "hold"]
            (content,) = (await peer.request("resources/read", {"uri": CARD}))["contents"]
            assert content["mimeType"] == MEDIA_TYPE
            task_id = (await peer.call("slow", {"n": 1}))["_meta"]["backburner/result-of"]
            assert (await peer.tool(LOOK, task_id=task_id))["outcome"]["text"] == "slow done n=1"


def test_the_card_can_be_switched_off(deployment: Deployment) -> None:
    deployment.settings["mcp__card"] = "false"
    with deployment.http() as server, connected(server.url, token="ann") as ann:
        tools = ann.tools()
        assert not any(name.startswith("backburner_card") or page_of(tools[name]) for name in tools)
        assert ann.call("typed", n=2)["structuredContent"] == {"n": 2}
        with pytest.raises(MCPError):
            ann.ask("resources/read", {"uri": CARD})


def test_a_look_gives_the_end_of_the_log_and_then_what_is_new(ann: Connection) -> None:
    task_id = finished(ann, "hostile")
    seen = look(ann, task_id)
    lines = seen["log"]["lines"]
    assert len(lines) == 100
    assert seen["log"]["skipped"] == lines[0]["seq"] - 1
    assert max(len(line["text"]) for line in lines) < 2100
    assert look(ann, task_id, cursor=seen["log"]["cursor"])["log"]["lines"] == []
    assert [one["name"] for one in seen["artifacts"]["shown"]] == ["<b>drawing.svg", "\u202epage.html"]
    assert error_of(ann.call(LOOK, task_id=task_id, cursor="nonsense"))[0] == "invalid_cursor"


@pytest.mark.slow
@pytest.mark.parametrize("printed", [True, False])
def test_a_line_of_fifty_megabytes_is_a_short_answer(ann: Connection, printed: bool) -> None:
    task_id = finished(ann, "long_line", chars=50_000_000, printed=printed)
    at_once = ann.call(LOOK, task_id=task_id)["structuredContent"]["log"]
    from_the_start = look(ann, task_id, cursor="log_000000000")["log"]
    assert len(at_once["lines"]) == 100
    assert from_the_start["more"]
    for log in (at_once, from_the_start):
        assert len(json.dumps(log)) < 1_500_000
        assert max(len(line["text"]) for line in log["lines"]) < 2100
        assert {line["stream"] for line in log["lines"]} <= {"stdout" if printed else "log", "backburner"}
    next_lines = look(ann, task_id, cursor=from_the_start["cursor"])["log"]["lines"]
    assert next_lines[0]["seq"] == from_the_start["lines"][-1]["seq"] + 1


def test_a_large_file_comes_in_pieces(ann: Connection) -> None:
    task_id = finished(ann, "typed")
    assert look(ann, task_id)["artifacts"] == {"count": 0, "shown": []}
    task_id = finished(ann, "large", size=1_500_001)
    ((file),) = look(ann, task_id)["artifacts"]["shown"]
    pieces: list[str] = []
    offset: int | None = 0
    while offset is not None:
        piece = ann.call(FILE, task_id=task_id, artifact_id=file["artifact_id"], offset=offset)
        pieces.append(piece["structuredContent"]["data"])
        offset = piece["structuredContent"]["next_offset"]
    assert len(pieces) == 3
    assert base64.b64decode("".join(pieces)) == b"\x07" * 1_500_001


def test_another_s_task_and_its_files_are_as_unknown_as_one_that_never_was(url: str, ann: Connection) -> None:
    task_id = finished(ann, "relax", stop_at=2, go_on=True)
    ((file), *_) = look(ann, task_id)["artifacts"]["shown"]
    own = finished(ann, "typed", n=3)
    with connected(url, token="bob") as bob:
        for name, more in (
            (LOOK, {}),
            (CANCEL, {}),
            (ANSWER, {"answers": {}}),
            (FILE, {"artifact_id": file["artifact_id"]}),
            (TELL, {}),
            (TELL, {"told": False}),
        ):
            said = {
                (code, message.replace(asked, "…"))
                for asked in (task_id, UNKNOWN)
                for code, message in [error_of(bob.call(name, task_id=asked, **more))]
            }
            assert {code for code, _ in said} == {"task_not_found"}
            assert len(said) == 1
    elsewhere = ann.call(FILE, task_id=own, artifact_id=file["artifact_id"])
    assert error_of(elsewhere)[0] == "artifact_not_found"


def test_a_call_under_way_is_found_by_its_owner_with_its_inputs_alone(url: str, ann: Connection) -> None:
    def found(server: Connection, **inputs: Any) -> Any:
        return server.call(FIND, tool_name="relax", inputs=inputs)["structuredContent"]["task_id"]

    task_id = ann.hand_out("relax", stop_at=11)["_meta"]["backburner/task"]
    with connected(url, token="bob") as bob:
        assert [found(ann, stop_at=11), found(ann, stop_at=12), found(bob, stop_at=11)] == [
            task_id,
            None,
            None,
        ]
    ann.call(CANCEL, task_id=task_id)
    assert wait_until(lambda: found(ann, stop_at=11) is None)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        (LOOK, {}),
        (LOOK, {"task_id": 7}),
        (LOOK, {"task_id": "x" * 1000}),
        (FILE, {"task_id": UNKNOWN, "artifact_id": "a", "offset": -1}),
        (ANSWER, {"task_id": UNKNOWN, "answers": []}),
        (TELL, {"task_id": UNKNOWN, "extra": 1}),
        (FIND, {"tool_name": "relax", "inputs": "x"}),
    ],
)
def test_what_a_page_asks_for_is_checked(ann: Connection, name: str, arguments: dict[str, Any]) -> None:
    assert error_of(ann.call(name, **arguments))[0] == "invalid_inputs"


def test_a_card_has_nothing_to_tell_before_the_end_and_once_the_model_is_told(ann: Connection) -> None:
    def tell(**more: Any) -> dict[str, Any]:
        said: dict[str, Any] = ann.call(TELL, task_id=task_id, **more)["structuredContent"]
        return said

    running = ann.hand_out("relax")["_meta"]["backburner/task"]
    assert error_of(ann.call(TELL, task_id=running))[0] == "not_finished"
    task_id = finished(ann, "typed", n=9)
    for _ in range(2):  # until the host confirms
        told = tell()
        assert told["tell"]
        assert '"n": 9' in told["whole"]
    assert tell(told=True) == tell() == {"tell": False}


@pytest.mark.parametrize("tool", ["wait_for_task", "get_task_result"])
def test_a_card_has_nothing_to_tell_of_a_result_that_a_task_tool_returned(ann: Connection, tool: str) -> None:
    task_id = finished(ann, "typed", n=len(tool))
    assert ann.call(tool, task_id=task_id)["structuredContent"]["state"] == "succeeded"
    assert ann.call(TELL, task_id=task_id)["structuredContent"] == {"tell": False}


async def test_an_answer_on_the_card_ends_the_question_of_a_held_call(url: str) -> None:
    async def leave_open(context: Any, params: Any) -> Any:
        await asyncio.Event().wait()

    pages = {UI: {"mimeTypes": [MEDIA_TYPE]}}
    async with connect(url, "2025", token="ann", elicit=leave_open, extensions=pages) as peer:
        call = asyncio.create_task(peer.call("ask"))
        seen: dict[str, Any] = {"questions": []}
        while not seen["questions"]:
            task_id = (await peer.tool(FIND, tool_name="ask", inputs={}))["task_id"]
            seen = seen if task_id is None else await peer.tool(LOOK, task_id=task_id)
        answers = {seen["questions"][0]["key"]: {"action": "decline"}}
        await peer.tool(ANSWER, task_id=task_id, answers=answers)
        assert (await call)["content"][0]["text"] == "decline: []"


def test_calls_that_are_alike_are_told_apart_by_connection_and_by_request(url: str, ann: Connection) -> None:
    def found(server: Connection, **more: Any) -> Any:
        named = {"tool_name": "relax", "inputs": {"stop_at": 13}}
        return server.call(FIND, **named, **more)["structuredContent"]["task_id"]

    ann.hold("relax", stop_at=13)
    assert wait_until(lambda: found(ann))
    first = found(ann)
    with connected(url, token="ann") as window:
        window.hold("relax", stop_at=13)
        assert wait_until(lambda: found(window) != first)
        assert found(ann) == first
        # Else it may join one of the others.
        again = {"name": "relax", "arguments": {"stop_at": 13}, "_meta": {"backburner/new": True}}
        ann.begin("tools/call", again)
        assert wait_until(lambda: found(ann) != first)
        assert {found(ann, request_id=number) for number in range(30)} == {first, found(ann)}
