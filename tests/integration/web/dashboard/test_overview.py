"""The overview: what there is, what ended, what runs, and what needs attention."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.integration.web.conftest import Api
from tests.integration.web.dashboard.conftest import PHONE, Open


def figure(page: Page, title: str) -> int:
    return int(page.locator(".figure", has_text=title).locator("strong").inner_text().replace(",", ""))


@contextlib.contextmanager
def running(api: Api) -> Iterator[str]:
    """A task that runs meanwhile."""
    task_id = api.submit("wait")
    try:
        api.until(task_id, lambda task: task["state"] == "running")
        yield task_id
    finally:
        api.post(f"/tasks/{task_id}/cancel")
        api.done(task_id)


def test_each_state_is_a_figure_that_leads_to_its_tasks(look: Open, local: Api) -> None:
    local.finished("count")
    page = look("/")
    assert figure(page, "Succeeded") >= 1
    leads = page.locator(".figure").evaluate_all("all => all.map(one => one.getAttribute('href'))")
    assert "/dashboard/tasks?state=succeeded" in leads
    assert "/dashboard/tasks?state=scheduled&state=running" in leads
    assert len(leads) == 9
    before = figure(page, "Succeeded")
    local.finished("count")
    expect(page.locator(".figure", has_text="Succeeded").locator("strong")).not_to_have_text(f"{before:,}")
    assert figure(page, "Succeeded") > before


def test_a_running_task_is_a_slot_with_its_bar_until_it_ends(look: Open, local: Api) -> None:
    page = look("/")
    with running(local) as task_id:
        slot = page.locator(f".slot a[href='/dashboard/tasks/{task_id}']")
        expect(slot).to_contain_text("wait")
        expect(slot.locator("progress")).to_be_visible()
    expect(slot).to_have_count(0)


def test_many_idle_workers_take_one_line(look: Open) -> None:
    page = look("/")
    queue = page.locator("#queue-io")
    expect(queue).to_contain_text("0 running · 64 workers")
    assert page.locator("#queue-io .dots i").count() == 12
    box = queue.bounding_box()
    assert box is not None
    assert box["height"] < 60


def test_a_question_waits_here_until_it_is_answered(look_as: Open, by: Callable[[str | None], Api]) -> None:
    page, api = look_as("bob"), by("bob")
    task_id = api.submit("ask")
    asked = page.locator(f"#asks-{task_id}")
    expect(asked).to_contain_text("Your name?")
    expect(asked.get_by_role("link", name="Answer")).to_have_attribute("href", f"/dashboard/tasks/{task_id}")
    (question,) = api.get(f"/tasks/{task_id}")["questions"]
    answer = {"action": "accept", "content": {"name": "Ann"}}
    api.post(f"/tasks/{task_id}/answers", {"answers": {question["key"]: answer}})
    expect(asked).to_have_count(0)


def test_a_failure_says_why_and_can_be_tried_again(look: Open, local: Api) -> None:
    task_id = local.finished("fail", reason="<img src=x onerror=alert(1)> \u202e broke")
    page = look("/")
    failed = page.locator(f"#failed-{task_id}")
    expect(failed).to_contain_text("<img src=x onerror=alert(1)> \\u202e broke")
    failed.get_by_role("button", name="Retry").click()
    expect(page.locator("#said")).to_have_text("Queued again")
    local.until(task_id, lambda task: task["attempt"] == 2 and task["state"] == "failed")
    expect(failed).to_be_visible()


def test_what_ended_is_drawn_and_stands_in_a_table(look: Open, local: Api) -> None:
    local.finished("count")
    page = look("/?last=day")
    expect(page.get_by_role("link", name="Last Day")).to_have_attribute("aria-current", "true")
    expect(page.get_by_role("img", name="Completed tasks each 20 minutes")).to_be_visible()
    title = page.locator("#chart-ended .column title").last.text_content()
    assert title is not None
    assert "succeeded" in title
    page.locator("#chart-run .column").last.hover()
    expect(page.locator("figure", has_text="Time to run").locator(".readout")).to_contain_text(
        "median within"
    )
    page.get_by_text("Show as a table").click()
    table = page.get_by_role("region", name="Completed tasks, as a table")
    expect(table.get_by_role("columnheader").first).to_have_text("From (UTC)")
    assert table.locator("tbody tr").count() >= 1
    page.get_by_role("link", name="Last Week").click()
    page.wait_for_url("**/?last=week")
    expect(page.locator("figure").first).to_contain_text("each 2 hours")


@pytest.mark.whole
def test_who_may_only_look_has_no_buttons(look_as: Open, by: Callable[[str | None], Api]) -> None:
    task_id = by("alice").finished("fail")
    page = look_as("alices-screen")
    expect(page.locator(f"#failed-{task_id}")).to_contain_text("it broke")
    expect(page.get_by_role("main").get_by_role("button")).to_have_count(0)


def test_of_another_owner_only_that_a_worker_is_busy_is_seen(
    look_as: Open, by: Callable[[str | None], Api]
) -> None:
    page = look_as("bob")
    with running(by("alice")) as task_id:
        expect(page.locator(".slot", has_text="a task of another owner")).to_be_visible()
        assert task_id not in page.content()
        expect(look_as("wall").locator(f".slot a[href='/dashboard/tasks/{task_id}']")).to_be_visible()


@pytest.mark.parametrize(
    "path", ["/", "/?last=week", "/dashboard/queues", "/dashboard/workers", "/dashboard/clients"]
)
def test_at_phone_width_no_page_moves_sideways(look: Open, local: Api, path: str) -> None:
    page = look(path, viewport=PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
