"""The tools, and the form that starts a task of one."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest
from playwright.sync_api import Page, Route, expect

from tests.integration.web.conftest import Api
from tests.integration.web.dashboard.conftest import PHONE, Open


def submitted(page: Page) -> str:
    """Submit, and see to which task that leads. Its page is another's to test."""

    def lead_nowhere(route: Route) -> None:
        route.fulfill(status=204)

    page.route("**/dashboard/tasks/tsk_*", lead_nowhere)
    with page.expect_request(re.compile("/dashboard/tasks/tsk_")) as leads:
        page.get_by_role("button", name="Submit").click()
    return leads.value.url.rpartition("/")[2]


def test_every_tool_is_listed(look: Open) -> None:
    page = look("/dashboard/tools")
    line = page.get_by_role("row").filter(has_text="long_line")
    expect(line).to_contain_text("Print one line that no page can hold")
    expect(line).to_contain_text("cpu_heavy")
    page.get_by_role("link", name="shaped").click()
    expect(page.get_by_role("heading", name="shaped")).to_be_visible()
    expect(page.get_by_text("And give them back.")).to_be_visible()


def test_a_form_starts_a_task(look: Open, local: Api) -> None:
    page = look("/dashboard/tools/shaped")
    expect(page.get_by_label("mode (optional)")).to_have_value("0")
    page.get_by_role("button", name="Submit").click()
    expect(page.get_by_label("name", exact=True)).to_be_focused()
    page.get_by_label("name", exact=True).fill("anna")
    page.get_by_label("sizes").fill("1\n22\n")
    page.get_by_label("box").fill('{"width": ')
    page.get_by_role("button", name="Submit").click()
    expect(page.get_by_text("This is not JSON")).to_be_visible()
    page.get_by_label("box").fill('{"width": 3}')
    expect(page.get_by_text("This is not JSON")).to_have_count(0)
    page.get_by_label("mode").select_option(label="fine")
    page.get_by_label("loud").uncheck()
    expect(page.get_by_label("key (optional)")).to_have_attribute("type", "password")
    page.get_by_label("key (optional)").fill("s3cret")
    page.get_by_text("Options").click()
    page.get_by_label("Queue").select_option("cpu_heavy")
    page.get_by_label("Priority").fill("7")
    page.get_by_label("Tags").fill("by-hand, second")
    task = local.get(f"/tasks/{submitted(page)}")
    given = {"name": "anna", "sizes": [1, 22], "box": {"width": 3}, "mode": "fine", "loud": False}
    assert {name: task["inputs"][name] for name in given} == given
    assert "note" not in task["inputs"]
    assert "s3cret" not in str(task)
    assert (task["queue"], task["priority"], task["tags"]) == ("cpu_heavy", 7, ["by-hand", "second"])


def test_what_the_server_says_is_at_its_field(look: Open) -> None:
    page = look("/dashboard/tools/shaped")
    page.get_by_label("name", exact=True).fill("ANNA")
    page.get_by_label("sizes").fill("1")
    page.get_by_label("box").fill("{}")
    page.get_by_role("button", name="Submit").click()
    field = page.locator(".field[data-name=name]")
    expect(field).to_contain_text("'ANNA' does not match '^[a-z]+$'")
    expect(page.get_by_label("name", exact=True)).to_be_focused()
    page.get_by_label("name", exact=True).fill("anna")
    expect(field).not_to_contain_text("does not match")


def test_the_same_inputs_as_json(look: Open, local: Api) -> None:
    page = look("/dashboard/tools/shaped")
    page.get_by_label("sizes").fill("4")
    page.get_by_role("button", name="JSON").click()
    text = page.get_by_label("Inputs as JSON")
    expect(text).to_have_value(re.compile(r'"sizes": \[\s+4\s+\]'))
    text.fill("[]")
    page.get_by_role("button", name="Submit").click()
    expect(page.get_by_text("The inputs must be an object")).to_be_visible()
    text.fill('{"name": "b", "sizes": [5], "box": {}, "note": "two\\nlines"}')
    page.get_by_role("button", name="Form").click()
    expect(page.get_by_label("note")).to_have_value("two\nlines")
    page.get_by_label("note").fill("")
    task = local.get(f"/tasks/{submitted(page)}")
    assert task["inputs"]["note"] is None
    assert task["inputs"]["sizes"] == [5]


def test_a_tool_without_inputs_needs_only_a_press(look: Open, local: Api) -> None:
    page = look("/dashboard/tools/wait")
    expect(page.get_by_text("No inputs.")).to_be_visible()
    task_id = submitted(page)
    assert local.get(f"/tasks/{task_id}")["tool_name"] == "wait"
    local.post(f"/tasks/{task_id}/cancel")


@pytest.mark.whole
def test_who_may_only_look_has_no_form(look_as: Open) -> None:
    page = look_as("alices-screen", "/dashboard/tools/shaped")
    expect(page.get_by_text("Your role cannot start tasks")).to_be_visible()
    expect(page.get_by_role("button", name="Submit")).to_have_count(0)
    assert page.request.get("/dashboard/tools/none").status == 400


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_accessible_and_fits_a_phone(look: Open, scheme: str) -> None:
    page = look("/dashboard/tools", color_scheme=scheme, viewport=PHONE)
    for path in ("/dashboard/tools", "/dashboard/tools/shaped"):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
        page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text())
        found = page.evaluate("axe.run().then(({ violations }) => violations)")
        bad = [(one["id"], one["nodes"]) for one in found if one["impact"] in ("serious", "critical")]
        assert bad == []
