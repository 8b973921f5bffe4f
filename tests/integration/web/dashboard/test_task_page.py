"""The page of a task."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.integration.web.conftest import UNKNOWN, Api
from tests.integration.web.dashboard.conftest import PHONE, Open


def at(task_id: str) -> str:
    return f"/dashboard/tasks/{task_id}"


@pytest.fixture(scope="module")
def painted(open_address: str) -> str:
    """A task that has all there is to be shown."""
    return Api(open_address).finished("paint")


# -- how it goes


def test_a_task_moves_before_ones_eyes_and_takes_an_answer(look: Open, local: Api) -> None:
    page = look(at(local.submit("halfway")))
    expect(page.locator("#state")).to_have_text("needs an answer")
    expect(page.get_by_role("progressbar")).to_have_attribute("value", "50.0")
    expect(page.locator(".words")).to_have_text("first half")
    expect(page.get_by_role("img", name="Attempt 1: failed")).to_be_visible()
    expect(page.get_by_text("Attempt 1: not yet")).to_be_visible()
    page.get_by_role("group", name="Question").get_by_role("button", name="Yes").click()
    expect(page.locator("#state")).to_have_text("succeeded")
    expect(page.locator("#result pre")).to_have_text("accept")
    expect(page.get_by_role("group", name="Question")).to_have_count(0)
    expect(page.locator(".timeline rect.asked")).to_have_count(1)
    page.locator("#events summary").click()
    expect(page.locator("#events li")).to_contain_text(
        ["Submitted", "Claimed", "Started", "Queued for a retry"]
    )


def test_a_question_is_answered_by_its_form_or_declined(look: Open, local: Api) -> None:
    page = look(at(local.submit("ask")))
    asked = page.get_by_role("group", name="Question")
    asked.get_by_role("button", name="Send").click()
    expect(asked.get_by_role("alert")).to_contain_text("name")
    asked.get_by_label("name").fill("Ada")
    asked.get_by_label("name").press("Enter")
    expect(page.locator("#result")).to_contain_text("Hello, Ada!")
    page.goto(at(local.submit("ask")))
    asked.get_by_role("button", name="Decline").click()
    expect(page.locator("#result")).to_contain_text("no: decline")


def test_a_task_is_cancelled_with_a_reason(look: Open, local: Api) -> None:
    page = look(at(local.submit("wait")))
    expect(page.locator("#lines")).to_contain_text("waiting")
    page.get_by_role("button", name="Cancel", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Keep it running").click()
    expect(dialog).to_be_hidden()
    page.get_by_role("button", name="Cancel", exact=True).click()
    dialog.get_by_label("Reason").fill("enough of it")
    dialog.get_by_role("button", name="Cancel the task").click()
    expect(page.locator("#state")).to_have_text("cancelled")
    expect(page.get_by_role("region", name="Cancelled")).to_contain_text("enough of it")


def test_a_task_that_waits_says_why(look: Open, local: Api) -> None:
    local.post("/queues/cpu_heavy/pause")
    try:
        page = look(at(local.submit("long_line", chars=10)))
        reasons = page.get_by_role("region", name="Reason for waiting")
        expect(reasons).to_contain_text("The queue cpu_heavy is paused")
    finally:
        local.post("/queues/cpu_heavy/resume")
    expect(page.locator("#state")).to_have_text("succeeded")
    expect(reasons).to_have_count(0)
    expect(page.locator("#lines")).to_contain_text("after")


# -- once more


def test_a_failed_task_says_what_went_wrong_and_is_tried_again(look: Open, local: Api) -> None:
    page = look(at(local.finished("fail", reason="<b>broken</b>")))
    error = page.locator("#error")
    expect(error).to_contain_text("tool_error RuntimeError")
    expect(error.locator(".message")).to_have_text("RuntimeError: <b>broken</b>")
    expect(error.locator("pre")).to_be_hidden()
    error.get_by_text("Traceback", exact=True).click()
    expect(error.locator("pre")).to_contain_text("raise RuntimeError(reason)")
    page.get_by_role("button", name="Retry", exact=True).click()
    expect(page.locator(".timeline rect.failed")).to_have_count(2)
    page.get_by_role("button", name="Retry with other inputs").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("reason")).to_have_value("<b>broken</b>")
    dialog.get_by_label("reason").fill("something else")
    before = page.url
    dialog.get_by_role("button", name="Submit").click()
    expect(page.locator("#error .message")).to_have_text("something else")
    assert page.url != before


def test_a_secret_is_hidden_and_stays_what_it_was(look: Open, local: Api) -> None:
    page = look(at(local.finished("count", n=2, key="s3cret")))
    expect(page.locator("#inputs .tree")).to_contain_text("key: ***")
    assert "s3cret" not in page.content()
    page.get_by_role("button", name="Run again with other inputs").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("n (optional)").fill("4")
    dialog.get_by_role("button", name="Submit").click()
    expect(page.locator("#result .tree")).to_contain_text("counted: 4")
    expect(page.locator("#result .tree")).to_contain_text("key_chars: 6")


# -- the log


def test_a_log_is_coloured_and_nothing_in_it_does_anything(look: Open, painted: str) -> None:
    page = look(at(painted))
    lines = page.locator("#lines .line .text")
    expect(lines).to_have_count(5)
    expect(lines.nth(0)).to_have_text("red blue green line end")
    expect(lines.nth(0).locator(".f1.sb")).to_have_text("red")
    expect(lines.nth(0).locator(".f12, .f4")).to_have_text("blue")
    expect(lines.nth(0).locator(".f2, .f10")).to_have_text("green")
    expect(lines.nth(0).locator(".su")).to_have_text("line")
    expect(lines.nth(1)).to_have_text("100 %")
    expect(lines.nth(2)).to_have_text(
        "<img src=x onerror=alert(1)><script>alert(1)</script>\\u202egpj.exe\\x08"
    )
    expect(page.locator("#L3")).to_have_class("line bad")
    expect(lines.nth(3)).to_contain_text("y … and 8,000 more characters")
    assert page.locator("main script:not([type='application/json']), main b, [onerror]").count() == 0
    expect(page.locator("#L1 .when")).to_be_hidden()
    page.get_by_role("button", name="Times").click()
    expect(page.locator("#L3 .when")).to_contain_text("error")


def test_a_long_log_is_drawn_in_part_and_searched_whole(look: Open, local: Api, tmp_path: Path) -> None:
    task_id = local.finished("flood")
    page = look(at(task_id))
    expect(page.locator("#L12000")).to_be_visible()
    assert page.locator(".line").count() < 2000
    page.get_by_label("Search in the log").fill("NUMBER 77")
    found = page.locator("#log-found")
    expect(found).to_have_text("1 of 111 lines")
    expect(page.locator("#L77 mark")).to_have_text("number 77")
    expect(page.locator("#L77")).to_be_in_viewport()
    page.get_by_role("button", name="Previous match").click()
    expect(found).to_have_text("111 of 111 lines")
    expect(page.locator("#L7799")).to_be_in_viewport()
    page.get_by_role("button", name="To the end").click()
    expect(page.locator("#L12000")).to_be_in_viewport()
    with page.expect_download() as download:
        page.locator("#log").get_by_role("button", name="Download").click()
    download.value.save_as(tmp_path / "log")
    assert (tmp_path / "log").read_text() == "".join(f"number {i}\n" for i in range(1, 12_001))
    page.goto(f"{at(task_id)}#L6001")
    expect(page.locator("#L6001")).to_have_class("line marked")
    expect(page.locator("#L6001")).to_be_in_viewport()


def test_a_progress_bar_that_a_tool_prints_is_one_line_that_moves(
    look: Open, local: Api, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    page = look(at(local.submit("bar", gate=str(gate))))
    lines = page.locator("#lines .line .text")
    for shown, opened in (("50%|##", gate), ("90%|##", tmp_path / "gate-2")):
        expect(lines).to_have_text([shown])
        opened.touch()
    expect(lines).to_have_text(["100%|##", "after the bar"])
    page.reload()
    expect(lines).to_have_text(["100%|##", "after the bar"])


def test_a_log_is_followed_until_one_scrolls_up(look: Open, local: Api) -> None:
    page = look(at(local.submit("flood", lines=3000)), viewport={"width": 1000, "height": 700})
    expect(page.locator("#state")).to_have_text("succeeded")  # from now on nothing moves the page
    page.locator("#log").scroll_into_view_if_needed()
    expect(page.locator("#L3000")).to_be_in_viewport()
    page.locator("#lines").evaluate("lines => lines.scrollBy(0, -1000)")
    expect(page.locator("#log-follow")).to_be_visible()
    page.locator("#log-follow").click()
    expect(page.locator("#log-follow")).to_be_hidden()
    expect(page.locator("#L3000")).to_be_in_viewport()


# -- what came out


def test_a_result_is_a_tree_that_is_folded_and_bounded(look: Open, painted: str) -> None:
    page = look(at(painted), permissions=["clipboard-read", "clipboard-write"])
    tree = page.locator("#result .tree")
    expect(tree).to_contain_text("<script>alert(1)</script>\\x1b]0;title\\x07\\u202egpj.exe")
    expect(tree).to_contain_text("3,000 more characters")
    atoms = tree.locator("details", has_text="atoms").first
    expect(atoms.locator("summary").first).to_have_text("atoms: [300]")
    expect(atoms.locator("summary").nth(1)).to_be_hidden()
    atoms.locator("summary").first.click()
    expect(atoms.locator("summary").nth(1)).to_be_visible()
    expect(atoms).to_contain_text("and 200 more, not shown here")
    page.locator("#result").get_by_role("button", name="Copy as JSON").click()
    expect(page.locator("#said")).to_have_text("Copied")
    assert '"at": [' in page.evaluate("navigator.clipboard.readText()")


def test_files_are_seen_and_downloaded(look: Open, painted: str) -> None:
    page = look(at(painted))
    drawing = page.get_by_role("img", name="<b>drawing.svg")
    expect(drawing).to_have_js_property("naturalWidth", 90)
    file = page.locator("#files li", has_text="forces.json")
    expect(file.locator("bdi")).to_have_text("\\u202eforces.json")
    file.get_by_role("button", name="Show").click()
    expect(file.locator("pre")).to_contain_text('"forces": [')
    html = page.locator("#files li", has_text="page.html")
    html.get_by_role("button", name="Show").click()
    expect(html.locator("pre")).to_contain_text("… 140 kB total")
    with page.expect_download() as download:
        html.get_by_role("link", name="Download").click()
    assert download.value.path().read_bytes() == b"no page" * 20_000


# -- what is gone, and what others have


def test_a_task_that_is_deleted_while_one_looks_says_so(look: Open, local: Api) -> None:
    task_id = local.finished("count")
    page = look(at(task_id))
    expect(page.get_by_role("button", name="Delete")).to_be_visible()
    local.delete(f"/tasks/{task_id}")
    expect(page.get_by_role("alert")).to_contain_text("expired or was deleted")
    expect(page.get_by_role("button", name="Delete")).to_be_hidden()
    assert page.request.get(at(task_id)).status == 404


def test_deleting_asks_first_and_leads_to_the_tasks(look: Open, local: Api) -> None:
    task_id = local.finished("count")
    page = look(at(task_id))
    page.route("**/dashboard/tasks", lambda route: route.fulfill(body="the list"))  # has tests of its own
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Keep it").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    local.get(f"/tasks/{task_id}")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Delete it").click()
    page.wait_for_url("**/dashboard/tasks")
    local.get(f"/tasks/{task_id}", 404)


def test_a_task_is_found_by_the_beginning_of_its_id(look: Open, painted: str) -> None:
    page = look(at(painted[4:26].lower()))
    assert page.url.endswith(at(painted))
    expect(page.get_by_role("heading", name="paint")).to_be_visible()


def test_who_may_only_look_sees_whose_it_is_and_no_buttons(
    look_as: Open, by: Callable[[str | None], Api]
) -> None:
    task_id = by("alice").submit("ask")
    by("alice").until(task_id, lambda task: task["state"] == "input_required")
    page = look_as("wall", at(task_id))
    expect(page.locator("#asking")).to_contain_text("Your name?")
    expect(page.locator("#head")).to_contain_text("alice")
    expect(page.locator("#head .actions, #asking button, dialog")).to_have_count(0)
    page = look_as("alice", at(task_id))
    page.get_by_role("button", name="Decline").click()
    expect(page.locator("#state")).to_have_text("succeeded")


def test_the_task_of_another_is_as_unknown_as_one_that_is_not(
    look_as: Open, by: Callable[[str | None], Api]
) -> None:
    task_id = by("alice").finished("count")
    (artifact,) = by("alice").get(f"/tasks/{task_id}/artifacts")["artifacts"]
    page = look_as("bob")

    def answered(path: str) -> tuple[int, str]:
        answer = page.request.get(path, max_redirects=0)
        return answer.status, answer.text()

    for task in (at(task_id), f"{at(task_id)}/artifacts/{artifact['artifact_id']}"):
        status, text = answered(task)
        assert status == 404
        assert text.replace(task_id, UNKNOWN) == answered(task.replace(task_id, UNKNOWN))[1]


# -- for everybody


def test_axe_finds_nothing_serious_and_a_phone_is_wide_enough(look: Open, local: Api, painted: str) -> None:
    axe = (files("axe_playwright_python") / "axe.min.js").read_text()
    asking, failed = local.submit("ask"), local.finished("fail")
    local.until(asking, lambda task: task["state"] == "input_required")

    def serious(page: Page) -> list[Any]:
        page.evaluate(axe)
        found = page.evaluate("axe.run().then(({ violations }) => violations)")
        bad = [one for one in found if one["impact"] in ("serious", "critical")]
        return [(one["id"], one["nodes"][0]["html"]) for one in bad]

    for scheme, size in (("light", None), ("dark", PHONE)):
        page = look("/", color_scheme=scheme, **({} if size is None else {"viewport": size}))
        for task_id in (painted, asking, failed):
            page.goto(at(task_id))
            expect(page.locator("#inputs")).to_be_visible()
            assert serious(page) == []
            wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0
    local.post(f"/tasks/{asking}/cancel")
