"""The card in a browser, in a host that was written from the specification of MCP Apps."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Frame, expect

from tests.deployment import Deployment
from tests.integration.card.card_server import picture
from tests.integration.card.chat import CALL_ID, Chat, Connection, connected
from tests.services import wait_until

OpenChat = Callable[..., Chat]
UNKNOWN = "tsk_" + "0" * 36
_DATA = re.compile("^data:image/svg")
_PNG = re.compile("^data:image/png")


def view(chat: Chat) -> Frame:
    """The card's own frame."""
    expect(chat.card.locator("#card")).to_be_visible()
    (frame,) = (frame for frame in chat.page.frames if frame.url.endswith("/view.html"))
    return frame


def tells(chat: Chat) -> list[dict[str, Any]]:
    """What the card has said about telling the model, without the task."""
    calls = [call["params"] for call in chat.seen("tools/call") if call["params"]["name"].endswith("_tell")]
    return [{key: value for key, value in call["arguments"].items() if key != "task_id"} for call in calls]


def handle_of(task_id: str) -> dict[str, Any]:
    """What a host has kept of a call whose task that is, if it keeps no `_meta`."""
    return {"content": [], "structuredContent": {"success": True, "data": {"job_id": task_id}}}


def tools_called_by(chat: Chat) -> set[str]:
    return {call["params"]["name"].removeprefix("backburner_card_") for call in chat.seen("tools/call")}


def test_a_held_call_is_seen_live_and_its_result_goes_to_the_model_by_the_call_alone(
    chat: Chat, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    call = chat.call("relax", stop_at=62, gate=str(gate), go_on=True)
    card = chat.card
    expect(card.locator("#title")).to_have_text("Relax a structure")
    expect(card.locator("#state")).to_have_text("Running")
    expect(card.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "31")
    expect(card.locator("#words")).to_have_text("Relaxation · energy decrease is stable")
    expect(card.locator("#left")).to_contain_text("left")
    expect(card.locator("#tail div").last).to_contain_text("step  30   energy")
    assert not call.done()
    gate.touch()
    expect(card.locator("#state")).to_have_text("Succeeded")
    expect(card.locator("#result")).to_contain_text('"n_steps": 62')
    expect(card.get_by_role("img", name="convergence.png")).to_be_visible()
    assert call.result()["structuredContent"]["n_steps"] == 62
    chat.page.wait_for_function("chat.delivered")
    expect(card.locator("#state")).to_have_text("Succeeded")
    view(chat).evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    assert tools_called_by(chat) == {"find", "look", "file"}
    assert chat.seen("tools/call")[0]["params"]["arguments"]["request_id"] == CALL_ID
    assert chat.seen("ui/update-model-context") == chat.seen("ui/message") == []
    assert chat.model_calls == ["relax"]


def test_a_cancel_on_the_card_ends_the_held_call(chat: Chat) -> None:
    call = chat.call("relax")
    card = chat.card
    expect(card.locator("#state")).to_have_text("Running")
    card.get_by_role("button", name="Cancel").click()
    card.get_by_role("button", name="Keep").click()
    expect(card.locator("#state")).to_have_text("Running")
    assert not call.done()
    card.get_by_role("button", name="Cancel").click()
    card.get_by_role("button", name="Stop").click()
    expect(card.locator("#state")).to_have_text("Cancelled")
    expect(card.get_by_role("button", name="Cancel")).to_be_hidden()
    expect(card.locator("#result")).to_have_text("Its user cancelled it on the card.")
    result = call.result(timeout=30)
    assert result["isError"]
    assert result["content"][0]["text"] == "Cancelled: Its user cancelled it on the card."


def test_a_call_that_outlasts_its_client_becomes_a_handle_and_the_card_goes_on(
    url: str, open_chat: OpenChat, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with connected(url, token="ann", name="hasty-chat") as server:
        chat = open_chat(server)
        call = chat.call("relax", stop_at=20, gate=str(gate), go_on=True, files=False)
        expect(chat.card.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "10")
        handle = call.result(timeout=30)
        task_id = handle["_meta"]["backburner/task"]
        words = handle["content"][-1]["text"]
        assert f"goes on in the background as task {task_id}" in words
        assert words.endswith("For its result, call wait_for_task with this task_id.")
        chat.page.wait_for_function("chat.delivered")
        gate.touch()
        expect(chat.card.locator("#state")).to_have_text("Succeeded")
        chat.page.wait_for_function("chat.methods('ui/update-model-context').length === 1")
        (update,) = chat.seen("ui/update-model-context")
        said = update["params"]["content"][0]["text"]
        assert said.startswith(f"Task {task_id} (relax) has succeeded. Its result:\n{{")


def test_a_question_is_a_form_whose_answer_reaches_the_tool(chat: Chat) -> None:
    call = chat.call("ask")
    card = chat.card
    expect(card.locator("#state")).to_have_text("Needs an answer")
    expect(card.locator(".asked")).to_have_text("How shall the run go on?")
    card.get_by_role("button", name="Send").click()
    expect(card.get_by_role("alert")).to_contain_text("Name of the run")
    expect(card.get_by_label("Name of the run")).to_be_focused()
    card.get_by_label("Name of the run").fill("run 7")
    card.get_by_label("method").select_option("r2SCAN")
    card.get_by_label("steps").fill("20")
    card.get_by_label("Spin-polarised").check()
    card.get_by_label("stress").check()
    card.get_by_label("Name of the run").press("Enter")
    expect(card.locator("#state")).to_have_text("Succeeded")
    given = {"keep": ["stress"], "method": "scan", "name": "run 7", "spin": True, "steps": 20}
    expect(card.locator("#result")).to_have_text(f"accept: {sorted(given.items())}")
    expect(card.locator(".question")).to_have_count(0)
    assert call.result()["content"][0]["text"] == f"accept: {sorted(given.items())}"
    assert chat.model_calls == ["ask"]


@pytest.mark.whole
def test_a_question_before_the_work_begins_is_asked_on_the_card_too(url: str, open_chat: OpenChat) -> None:
    with connected(url, "2026", token="ann") as server:
        chat = open_chat(server)
        chat.call("asks_first")
        expect(chat.card.locator(".asked")).to_have_text("May it begin?")
        chat.card.get_by_role("button", name="No").click()
        expect(chat.card.locator("#result")).to_have_text("decline")


def test_a_link_to_follow_is_opened_by_the_host_and_by_nobody_else(chat: Chat) -> None:
    chat.call("ask_with_link")
    expect(chat.card.locator(".asked")).to_have_text("Sign in, please")
    expect(chat.card.locator(".question small")).to_have_text("https://elsewhere.test/")
    chat.card.get_by_role("button", name="Open").click()
    chat.card.get_by_role("button", name="Done").click()
    expect(chat.card.locator("#result")).to_have_text("accept")
    assert [link["params"] for link in chat.seen("ui/open-link")] == [{"url": "https://elsewhere.test/"}]


@pytest.mark.whole
def test_a_server_that_cannot_be_reached_is_asked_again_and_that_is_said(chat: Chat, ann: Connection) -> None:
    chat.show("relax", {}, ann.hand_out("relax", stop_at=8), refuses=["tools/call"])
    expect(chat.card.locator("#note")).to_have_text("Its state cannot be had now: Denied")
    chat.page.evaluate("chat.refuses = []")
    expect(chat.card.locator("#state")).to_have_text("Running")
    expect(chat.card.locator("#note")).to_be_hidden()


def test_a_picture_is_shown_and_a_file_goes_to_the_user_by_way_of_the_host(chat: Chat) -> None:
    chat.call("relax", stop_at=3, go_on=True)
    card = chat.card
    image = card.get_by_role("img", name="convergence.png")
    expect(image).to_be_visible()
    expect(image).to_have_attribute("src", _PNG)
    assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") == 320
    expect(card.locator("#result")).to_contain_text('"energy_ev": -13.5721')
    card.get_by_role("button", name="Download opt.traj").click()
    expect(card.get_by_role("button", name="Download opt.traj")).to_be_enabled()
    card.get_by_role("button", name="Download convergence.png").click()
    expect(card.get_by_role("button", name="Download convergence.png")).to_be_enabled()
    first, second = (request["params"]["contents"][0] for request in chat.seen("ui/download-file"))
    assert (first["type"], first["resource"]["uri"]) == ("resource", "file:///opt.traj")
    assert base64.b64decode(first["resource"]["blob"]) == b"frame\n" * 3000
    assert second["resource"]["mimeType"] == "image/png"
    assert base64.b64decode(second["resource"]["blob"]) == picture()


def test_a_card_that_is_torn_down_answers_and_asks_for_nothing_more(chat: Chat) -> None:
    chat.call("relax")
    expect(chat.card.locator("#state")).to_have_text("Running")
    frame = view(chat)
    answer = chat.page.evaluate("chat.ask('ui/resource-teardown', { reason: 'closed' })")
    assert answer["result"] == {}
    before = len(chat.seen("tools/call"))
    frame.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    assert chat.page.evaluate("chat.ask('ping', {})")["result"] == {}  # so that has been dealt with
    assert len(chat.seen("tools/call")) == before
    assert chat.page.evaluate("chat.ask('ui/unknown', {})")["error"]["code"] == -32601


def test_a_card_that_nobody_sees_asks_for_nothing_and_looks_at_once_when_it_is_seen(chat: Chat) -> None:
    chat.page.clock.install()
    chat.hand_out("relax")
    expect(chat.card.locator("#state")).to_have_text("Running")
    frame = view(chat)
    hide = """hidden => {
        Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    frame.evaluate(hide, True)
    expect(chat.card.locator("#state")).to_have_text("Running")
    before = chat.looks()
    chat.page.clock.run_for(120_000)
    assert chat.looks() == before
    frame.evaluate(hide, False)
    chat.page.wait_for_function("before => chat.methods('tools/call').length > before", arg=before)


def test_the_card_follows_the_theme_the_colours_and_the_size_of_its_host(chat: Chat) -> None:
    chat.page.set_viewport_size({"width": 360, "height": 800})
    chat.call("relax", stop_at=3, go_on=True)
    expect(chat.card.locator("#state")).to_have_text("Succeeded")
    frame = view(chat)
    body = chat.card.locator("body")
    expect(body).to_have_css("background-color", "rgb(255, 255, 255)")
    chat.page.evaluate("chat.change({ theme: 'dark' })")
    expect(body).to_have_css("background-color", "rgb(31, 31, 30)")
    variables = {
        "--color-background-primary": "light-dark(#fff, #102030)",
        "--color-text-primary": "url(http://elsewhere.test/)",
        "display": "none",
    }
    chat.page.evaluate("variables => chat.change({ styles: { variables } })", variables)
    expect(body).to_have_css("background-color", "rgb(16, 32, 48)")
    assert frame.evaluate("document.documentElement.scrollWidth <= innerWidth")

    def fits() -> bool:
        told = chat.seen("ui/notifications/size-changed")[-1]["params"]["height"]
        is_high = frame.evaluate("Math.ceil(document.body.getBoundingClientRect().height)")
        return bool(told == is_high)

    assert wait_until(fits)
    chat.page.evaluate("chat.change({ containerDimensions: { maxHeight: 120 } })")
    chat.page.wait_for_function("chat.methods('ui/notifications/size-changed').at(-1).params.height === 120")


@pytest.mark.parametrize("value", ["url(http://elsewhere.test/1)", r"\75rl(http://elsewhere.test/2)"])
def test_the_card_of_a_host_without_a_policy_fetches_nothing(open_chat: OpenChat, value: str) -> None:
    chat = open_chat()
    chat.policy = ""
    chat.call("relax", stop_at=3, go_on=True)
    expect(chat.card.locator("#state")).to_have_text("Succeeded")
    with chat.page.expect_console_message(lambda message: "Content Security Policy" in message.text):
        variables = {"--color-background-primary": value}
        chat.page.evaluate("variables => chat.change({ styles: { variables } })", variables)
    chat.close()
    assert chat.fetched == []
    chat.complaints.heard.clear()
    chat.complaints.strangers.clear()


def test_a_chat_that_is_opened_again_shows_the_task_as_it_is_and_tells_nothing_twice(
    ann: Connection, open_chat: OpenChat, url: str
) -> None:
    first = open_chat()
    task_id = first.hand_out("relax", stop_at=3, go_on=True)
    expect(first.card.locator("#state")).to_have_text("Succeeded")
    first.page.wait_for_function("chat.methods('ui/update-model-context').length === 1")
    (update,) = first.seen("ui/update-model-context")
    assert update["params"]["content"][0]["text"].startswith(
        f"Task {task_id} (relax) has succeeded. Its result:\n{{"
    )
    assert wait_until(lambda: tells(first) == [{}, {"told": True}])

    again = open_chat()
    again.show("relax", {}, handle_of(task_id))
    expect(again.card.locator("#state")).to_have_text("Succeeded")
    again.page.wait_for_function("chat.methods('tools/call').some(one => one.params.name.endsWith('_tell'))")
    view(again).evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(again.card.locator("#result")).to_contain_text("converged")
    assert again.seen("ui/update-model-context") == []

    with connected(url, token="bob") as bob:
        of_bob = open_chat(bob)
        for task in (task_id, UNKNOWN):  # that of somebody else, and none: the same to him
            of_bob.show("relax", {}, handle_of(task))
            expect(of_bob.card.locator("#state")).to_have_text("Gone")
            expect(of_bob.card.locator("#note")).to_contain_text("it has expired, or was deleted")
            expect(of_bob.card.get_by_role("button", name="Cancel")).to_be_hidden()


@pytest.mark.whole
def test_a_host_that_waits_for_its_task_itself_has_a_live_card_which_leaves_the_telling_to_it(
    chat: Chat, ann: Connection, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    inputs = {"stop_at": 40, "go_on": True, "gate": str(gate)}
    call = {"name": "relax", "arguments": inputs, "task": {"ttl": 60_000}}
    task_id = ann.ask("tools/call", call)["task"]["taskId"]
    chat.show("relax", inputs, None)
    expect(chat.card.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "20")
    gate.touch()
    result = ann.ask("tasks/result", {"taskId": task_id})
    chat.page.evaluate("result => chat.deliver(result)", result)
    expect(chat.card.locator("#state")).to_have_text("Succeeded")
    image = chat.card.get_by_role("img", name="convergence.png")
    expect(image).to_be_visible()
    expect(image).to_have_attribute("src", _PNG)
    called = {call["params"]["name"] for call in chat.seen("tools/call")}
    assert called == {f"backburner_card_{verb}" for verb in ("find", "look", "file")}
    assert chat.seen("ui/update-model-context") == []


def test_a_model_counts_as_told_once_its_host_has_taken_the_context(
    ann: Connection, open_chat: OpenChat
) -> None:
    handle = ann.hand_out("relax", stop_at=2, go_on=True)
    deaf = open_chat()
    deaf.show("relax", {}, handle, refuses=["ui/update-model-context"])
    expect(deaf.card.locator("#note")).to_have_text("The model could not be told that it is over: Denied")
    chat = open_chat()
    chat.show("relax", {}, handle)
    chat.page.wait_for_function("chat.methods('ui/update-model-context').length === 1")
    assert wait_until(lambda: tells(chat) == [{}, {"told": True}])
    assert tells(deaf) == [{}]


def test_a_call_that_its_host_has_dropped_is_told_of_at_the_end(chat: Chat, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    chat.hold_without_answer("relax", stop_at=20, gate=str(gate), go_on=True, files=False)
    expect(chat.card.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "10")
    chat.page.evaluate("chat.cancel('Request timed out')")
    gate.touch()
    expect(chat.card.locator("#state")).to_have_text("Succeeded")
    chat.page.wait_for_function("chat.methods('ui/update-model-context').length === 1")


def test_a_call_that_its_user_stops_is_not_told_of(chat: Chat) -> None:
    call = chat.hold_without_answer("relax")
    expect(chat.card.locator("#state")).to_have_text("Running")
    call.cancel()
    chat.page.evaluate("chat.cancel('Stopped')")
    expect(chat.card.locator("#state")).to_have_text("Cancelled")
    assert chat.page.evaluate("chat.ask('ping', {})")["result"] == {}  # so that has been dealt with
    assert tells(chat) == []


@pytest.mark.whole
def test_a_host_that_refuses_has_told_nothing_and_a_message_begins_a_turn_if_that_is_set(
    open_chat: OpenChat, deployment: Deployment
) -> None:
    deployment.settings["mcp__card_tells"] = "message"
    with deployment.http() as server, connected(server.url, token="ann") as ann:
        result = ann.hand_out("relax", stop_at=2, go_on=True)
        deaf = open_chat(ann)
        deaf.show("relax", {}, result, refuses=["ui/update-model-context", "ui/message"])
        expect(deaf.card.locator("#note")).to_contain_text("could not be told")
        chat = open_chat(ann)
        chat.show("relax", {}, result)
        chat.page.wait_for_function("chat.methods('ui/message').length === 1")
        (update,), (message,) = chat.seen("ui/update-model-context"), chat.seen("ui/message")
        assert '"converged": true' in update["params"]["content"][0]["text"]
        sentence = f"Task {result['_meta']['backburner/task']} (relax) has succeeded."
        assert message["params"] == {"role": "user", "content": [{"type": "text", "text": sentence}]}


def test_a_progress_bar_that_a_tool_prints_is_one_line_that_moves(chat: Chat, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    chat.call("bar", gate=str(gate))
    rows = chat.card.locator("#tail div")
    for shown, opened in (("50%|##", gate), ("90%|##", tmp_path / "gate-2")):
        expect(rows).to_have_text([shown])
        opened.touch()
    expect(chat.card.locator("#state")).to_have_text("Succeeded")
    expect(rows).to_have_text(["100%|##", "after the bar"])


@pytest.mark.parametrize("how", ["result", "error"])
def test_what_is_meant_to_do_harm_is_shown_as_text(chat: Chat, how: str) -> None:
    chat.call("hostile", how=how)
    card = chat.card
    expect(card.locator("#state")).to_have_text("Succeeded" if how == "result" else "Failed")
    card.locator("summary").click()
    inert = "<img src=x onerror=alert(1)><script>alert(1)</script>red\\x07\\u202egpj.exe\\u2066"
    expect(card.locator("#tail")).to_contain_text("more characters")
    expect(card.locator("#result")).to_contain_text(inert if how == "error" else "<img src=x onerror")
    expect(card.get_by_role("img", name="<b>drawing.svg")).to_have_attribute("src", _DATA)
    expect(card.locator(".name").last).to_have_text("\\u202epage.html")
    assert view(chat).evaluate("document.querySelectorAll('#card script, #card b, [onerror]').length") == 0


def test_axe_finds_nothing_serious_in_light_and_in_dark(chat: Chat, ann: Connection) -> None:
    axe = (files("axe_playwright_python") / "axe.min.js").read_text()
    shown = {"relax": "figure img[src]", "ask": ".question", "hostile": "#result:not(:empty)"}
    for tool, ready in shown.items():
        chat.show(tool, {}, ann.hand_out(tool))
        expect(chat.card.locator(ready).first).to_be_visible()
        frame = view(chat)
        frame.evaluate(axe)
        for theme in ("light", "dark"):
            chat.page.evaluate("theme => chat.change({ theme })", theme)
            frame.wait_for_selector(f"html[data-theme={theme}]")
            found = frame.evaluate("axe.run().then(({ violations }) => violations)")
            serious = [one for one in found if one["impact"] in ("serious", "critical")]
            assert [(one["id"], one["nodes"][0]["html"]) for one in serious] == []
