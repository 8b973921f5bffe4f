"""The list of tasks: filters, live rows, pages, what is done to many, and keys."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.integration.web.conftest import Api
from tests.integration.web.dashboard.conftest import PHONE, Open

HOSTILE = '<img src=x onerror=alert(1)>\u202egnp.exe\x1b[31m"&'


def submit(api: Api, tool: str, *tags: str, queue: str | None = None, **inputs: Any) -> str:
    body = {"tool": tool, "inputs": inputs, "tags": [*tags], **({"queue": queue} if queue else {})}
    task_id: str = api.post("/tasks", body, 201)["task_id"]
    return task_id


def row(page: Page, task_id: str) -> Locator:
    return page.locator(f"#row-{task_id}")


def rows(page: Page) -> Locator:
    return page.locator("#rows > tr")


def lead_nowhere(route: Route) -> None:
    """Where a link leads is seen here; what is there is another's to test."""
    route.fulfill(status=204)


def press_until(page: Page, keys: str, shown: Locator) -> None:
    """Press a sequence of keys until its effect shows: the page drops a sequence that takes over 1.5 s."""
    for _ in range(10):
        page.keyboard.type(keys)
        with contextlib.suppress(AssertionError):
            return expect(shown).to_be_visible(timeout=3000)
    expect(shown).to_be_visible()


@pytest.fixture
def resting(local: Api) -> Iterator[str]:
    """A queue whose tasks wait."""
    local.post("/queues/io/pause")
    yield "io"
    local.post("/queues/io/resume")


def test_a_row_moves_while_one_looks(look: Open, local: Api) -> None:
    page = look("/dashboard/tasks?tag=moving")
    expect(page.get_by_text("No task matches this filter")).to_be_visible()
    task_id = submit(local, "half", "moving")
    expect(row(page, task_id).locator("progress")).to_have_attribute("value", "50.0")
    expect(row(page, task_id)).to_contain_text("half way")
    expect(row(page, task_id)).to_contain_text("50 %")
    local.post(f"/tasks/{task_id}/cancel")
    expect(row(page, task_id).locator(".state")).to_have_text("cancelled")
    expect(row(page, task_id).locator("progress")).to_have_count(0)


def test_filters_live_in_the_address(look: Open, local: Api) -> None:
    counted = submit(local, "count", "filtered", "even")
    failed = submit(local, "fail", "filtered", "odd", reason="Green smoke")
    for task_id in (counted, failed):
        local.done(task_id)
    page = look("/dashboard/tasks")
    expect(page.locator("#known-tag option[value=odd]")).to_have_count(1)
    expect(page.locator("#known-tool option[value=shaped]")).to_have_count(1)
    page.get_by_label("Tag", exact=True).fill("filtered")
    page.get_by_label("Tag", exact=True).press("Enter")
    expect(rows(page)).to_have_count(2)
    page.locator("#menu-state summary").click()
    page.locator("#menu-state").get_by_label("failed").check()
    expect(rows(page)).to_have_count(1)
    expect(page.locator("#menu-state")).to_have_attribute("open", "")
    page.wait_for_url("**/dashboard/tasks?state=failed&tag=filtered")
    shared = look(page.url)
    expect(row(shared, failed)).to_contain_text("Green smoke")
    page.go_back()
    expect(rows(page)).to_have_count(2)
    expect(page.locator("#menu-state").get_by_label("failed")).not_to_be_checked()
    page.go_forward()
    expect(rows(page)).to_have_count(1)
    page.keyboard.press("Escape")
    page.get_by_label("Tag filtered").click()
    page.wait_for_url("**/dashboard/tasks?state=failed")
    page.get_by_role("link", name="Clear").click()
    page.wait_for_url("**/dashboard/tasks")
    page.get_by_label("Search").fill("green smo")
    expect(rows(page)).to_have_count(1)
    expect(page.get_by_label("Search")).to_be_focused()
    page.wait_for_url("**/dashboard/tasks?text=green+smo")


def test_filters_need_no_script(look: Open, local: Api) -> None:
    old, new = (submit(local, "count", "scriptless", n=0) for _ in range(2))
    page = look("/dashboard/tasks", java_script_enabled=False)
    page.get_by_label("Tool").fill("count")
    page.get_by_label("Tag", exact=True).fill("scriptless")
    page.get_by_label("Submitted within").select_option("15m")
    page.get_by_label("Order").select_option("oldest")
    page.get_by_role("button", name="Apply").click()
    page.wait_for_url(lambda url: "sort=oldest" in url)
    ids = rows(page).evaluate_all("rows => rows.map(row => row.dataset.id)")
    assert ids == [old, new]
    expect(page.get_by_label("Tool")).to_have_value("count")


def test_an_id_leads_to_its_task(look: Open, local: Api) -> None:
    task_id = local.finished("count", n=0)
    page = look("/dashboard/tasks")
    page.route("**/dashboard/tasks/tsk_*", lead_nowhere)
    page.get_by_label("Search").fill(task_id[4:24].lower())
    with page.expect_request(f"**/dashboard/tasks/{task_id}"):
        page.get_by_label("Search").press("Enter")
    page.goto(f"/dashboard/tasks?text={task_id[:24]}")
    expect(rows(page)).to_have_count(1)
    with page.expect_request(f"**/dashboard/tasks/{task_id}"):
        row(page, task_id).locator("td.what").click()
    assert page.request.get("/dashboard/tasks?state=lost").status == 400


def test_pages_go_on_and_back_and_a_filter_is_cancelled_at_once(look: Open, local: Api, resting: str) -> None:
    ids = [submit(local, "count", "many", queue=resting, n=0) for _ in range(53)]
    page = look("/dashboard/tasks?tag=many&state=queued")
    expect(rows(page)).to_have_count(50)
    expect(rows(page).first).to_have_id(f"row-{ids[-1]}")
    page.get_by_role("link", name="Older").click()
    expect(rows(page)).to_have_count(3)
    page.go_back()
    expect(rows(page)).to_have_count(50)
    page.go_forward()
    expect(rows(page)).to_have_count(3)
    page.get_by_role("link", name="Newer").click()
    expect(rows(page)).to_have_count(50)
    expect(page.get_by_role("link", name="Newer")).to_have_count(0)
    page.get_by_label("Select all tasks on this page").check()
    bar = page.get_by_role("region", name="Selected tasks")
    expect(bar).to_contain_text("50 selected")
    bar.get_by_role("button", name="All tasks of this filter").click()
    bar.get_by_role("button", name="Cancel").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Cancel 53 tasks?")
    dialog.get_by_role("button", name="Keep unchanged").click()
    expect(dialog).to_be_hidden()
    bar.get_by_role("button", name="Cancel").click()
    dialog.get_by_role("button", name="Cancel 53 tasks").click()
    expect(page.get_by_text("Cancelled: 53 tasks.")).to_be_visible()
    expect(page.get_by_text("No task matches this filter")).to_be_visible()
    assert len(local.get("/tasks", tag="many", state="cancelled", limit=100)["tasks"]) == 53


def test_ticked_tasks_are_tried_again_and_deleted(look: Open, local: Api) -> None:
    failed = [submit(local, "fail", "ticked") for _ in range(2)]
    other = submit(local, "count", "ticked", n=0)
    for task_id in (*failed, other):
        local.done(task_id)
    page = look("/dashboard/tasks?tag=ticked")
    bar = page.get_by_role("region", name="Selected tasks")
    expect(bar).to_be_hidden()
    for task_id in (failed[0], other):
        row(page, task_id).get_by_role("checkbox").check()
    expect(bar).to_contain_text("2 selected")
    expect(bar.get_by_role("button", name="Cancel")).to_be_disabled()
    bar.get_by_role("button", name="Retry").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Retry 1 task?")
    expect(dialog).to_contain_text("Not possible for 1 of the selected tasks")
    dialog.get_by_role("button", name="Retry 1 task").click()
    expect(page.get_by_text("Queued again: 1 task.")).to_be_visible()
    expect(bar).to_be_hidden()
    local.done(failed[0])
    row(page, other).get_by_role("checkbox").check()
    row(page, failed[1]).get_by_role("checkbox").click(modifiers=["Shift"])
    expect(bar).to_contain_text("2 selected")
    bar.get_by_role("button", name="Delete").click()
    dialog.get_by_role("button", name="Delete 2 tasks").click()
    expect(rows(page)).to_have_count(1)
    assert [task["task_id"] for task in local.get("/tasks", tag="ticked")["tasks"]] == [failed[0]]


def test_nothing_is_lost_when_tasks_come(look: Open, local: Api, resting: str) -> None:
    first, second = (submit(local, "count", "coming", queue=resting) for _ in range(2))
    page = look("/dashboard/tasks?tag=coming")
    expect(row(page, first)).to_contain_text("Queue paused")
    row(page, first).get_by_role("checkbox").check()
    page.get_by_label("Queue", exact=True).fill("half typ")
    third = submit(local, "count", "coming", queue=resting)
    coming = page.get_by_role("button", name="1 new task")
    expect(coming).to_be_visible()
    expect(row(page, third)).to_have_count(0)
    local.post(f"/tasks/{second}/cancel")
    expect(row(page, second).locator(".state")).to_have_text("cancelled")
    expect(row(page, first).get_by_role("checkbox")).to_be_checked()
    expect(page.get_by_label("Queue", exact=True)).to_have_value("half typ")
    expect(page.get_by_label("Queue", exact=True)).to_be_focused()
    page.get_by_label("Queue", exact=True).fill("")
    coming.click()
    expect(rows(page).first).to_have_id(f"row-{third}")
    expect(row(page, first).get_by_role("checkbox")).to_be_checked()
    row(page, first).get_by_role("checkbox").uncheck()
    page.get_by_role("heading", name="Tasks").click()
    fourth = submit(local, "count", "coming", queue=resting)
    expect(rows(page).first).to_have_id(f"row-{fourth}")


def test_a_task_that_is_gone_stays_only_while_others_are_ticked(look: Open, local: Api) -> None:
    chosen, gone = (submit(local, "count", "going", n=0) for _ in range(2))
    for task_id in (chosen, gone):
        local.done(task_id)
    page = look("/dashboard/tasks?tag=going")
    row(page, chosen).get_by_role("checkbox").check()
    local.delete(f"/tasks/{gone}")
    expect(row(page, gone)).to_have_class("left")
    page.get_by_role("region", name="Selected tasks").get_by_role(
        "button", name="Clear the selection"
    ).click()
    expect(row(page, gone)).to_have_count(0)
    expect(row(page, chosen)).to_be_visible()


def test_keys_walk_through_the_rows(look: Open, local: Api, resting: str) -> None:
    old, new = (submit(local, "count", "walked", queue=resting) for _ in range(2))
    page = look("/dashboard/tasks?tag=walked")
    page.keyboard.press("j")
    expect(row(page, new).locator("a[data-open]")).to_be_focused()
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(row(page, old).get_by_role("checkbox")).to_be_checked()
    page.keyboard.press("ArrowUp")
    expect(row(page, new).locator("a[data-open]")).to_be_focused()
    page.route("**/dashboard/tasks/tsk_*", lead_nowhere)
    with page.expect_response(f"**/dashboard/tasks/{new}"):
        page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    expect(page.get_by_label("Search")).to_be_focused()
    page.keyboard.type("gt?x")
    expect(page.get_by_label("Search")).to_have_value("gt?x")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_hidden()
    press_until(page, "go", page.get_by_role("heading", name="Overview"))


@pytest.mark.whole
def test_who_may_only_look_has_nothing_to_press(look_as: Open, guarded: str) -> None:
    for name in ("alice", "bob"):
        api = Api(guarded, name)
        local_id = api.finished("count", n=0)
        api.close()
    page = look_as("wall", "/dashboard/tasks")
    expect(row(page, local_id)).to_contain_text("bob")
    expect(page.get_by_role("checkbox")).to_have_count(0)
    expect(page.get_by_role("link", name="New task")).to_have_count(0)
    page.get_by_label("Owner").fill("alice")
    page.get_by_label("Owner").press("Enter")
    page.wait_for_url("**/dashboard/tasks?owner=alice")
    expect(row(page, local_id)).to_have_count(0)
    own = look_as("alice", "/dashboard/tasks")
    expect(rows(own).first).to_be_visible()
    expect(row(own, local_id)).to_have_count(0)
    expect(own.get_by_label("Owner")).to_have_count(0)
    assert own.request.get("/dashboard/tasks?owner=bob").status == 403


def test_hostile_text_is_shown_as_it_is(look: Open, local: Api) -> None:
    task_id = submit(local, "fail", "hostile", HOSTILE[:60], reason=HOSTILE)
    local.done(task_id)
    page = look("/dashboard/tasks?tag=hostile")
    expect(row(page, task_id)).to_contain_text("<img src=x onerror=alert(1)>\\u202egnp.exe")
    row(page, task_id).locator("a.tag").last.click()
    expect(rows(page)).to_have_count(1)
    page.goto('/dashboard/tasks?tool="><script>alert(1)</script>')
    expect(page.get_by_label("Tool")).to_have_value('"><script>alert(1)</script>')
    assert page.locator("main img, main script:not([type])").count() == 0


def test_on_a_phone_the_tasks_have_most_of_the_screen(look: Open, local: Api) -> None:
    for _ in range(3):
        submit(local, "count", "phone")
    page = look("/dashboard/tasks?tag=phone", viewport=PHONE)
    state, search = page.locator("#menu-state summary"), page.get_by_label("Search", exact=True)
    expect(rows(page)).to_have_count(3)
    expect(search).to_be_visible()
    expect(state).to_be_hidden()
    third = rows(page).nth(2).bounding_box()
    assert third is not None
    assert third["y"] + third["height"] < PHONE["height"] * 0.75
    page.get_by_text("Filters", exact=True).click()
    expect(state).to_be_visible()
    for name in ("Submitted within", "Order"):
        assert page.get_by_label(name).evaluate("one => one.scrollWidth <= one.clientWidth")
    page.get_by_label("Order").select_option("oldest")
    page.wait_for_url("**sort=oldest**")
    expect(state).to_be_visible()


def test_landmarks_of_a_page_are_unique(look: Open, local: Api) -> None:
    for _ in range(51):
        submit(local, "count", "many")
    axe = (files("axe_playwright_python") / "axe.min.js").read_text()
    page = look("/")
    paths = (
        "/dashboard/tasks",
        "/",
        *(f"/dashboard/{name}" for name in ("queues", "workers", "tools", "clients")),
    )
    for path in paths:
        page.goto(path)
        page.evaluate(axe)
        found = page.evaluate(
            "axe.run({ runOnly: ['landmark-unique'] }).then(({ violations }) => violations)"
        )
        assert [(path, [node["html"] for node in one["nodes"]]) for one in found] == []


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_accessible_and_fits_a_phone(look: Open, local: Api, resting: str, scheme: str) -> None:
    for tags in (["seen"], ["seen", "a-tag-with-a-very-long-name-indeed", "and-another-one-that-is-long"]):
        submit(local, "half", *tags)
        submit(local, "fail", *tags, reason="It broke at length " * 9)
        submit(local, "count", *tags, queue=resting)
    page = look("/dashboard/tasks?tag=seen", color_scheme=scheme, viewport=PHONE)
    expect(page.locator("progress").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text())
    page.get_by_text("Filters", exact=True).click()
    for width, height in (PHONE.values(), (1280, 900)):
        page.set_viewport_size({"width": width, "height": height})
        row(page, local.get("/tasks", tag="seen")["tasks"][0]["task_id"]).get_by_role("checkbox").check()
        page.locator("#menu-state summary").click()
        found = page.evaluate("axe.run().then(({ violations }) => violations)")
        bad = [(one["id"], one["nodes"]) for one in found if one["impact"] in ("serious", "critical")]
        assert bad == []
    local.post("/tasks/actions", {"action": "cancel", "filter": {"tag": ["seen"]}})
