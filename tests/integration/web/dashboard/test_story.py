"""A visit from its beginning to its end, through all that a person would use."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.integration.web.dashboard.conftest import PHONE, Open

WAYS: dict[str, dict[str, Any]] = {
    "dark": {"color_scheme": "dark"},
    "on a phone": {"color_scheme": "light", "viewport": PHONE, "has_touch": True},
}


def state(page: Page) -> Any:
    return page.locator("h1 + .state, header .state, main .state").first


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize("way", WAYS)
def test_from_a_form_to_a_file_and_to_a_list_that_is_shared(look: Open, tmp_path: Path, way: str) -> None:
    options = WAYS[way]
    page = look("/", **options)
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Tools").click()
    page.get_by_role("link", name="count").first.click()
    page.get_by_label("n (optional)").fill("5")
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url(re.compile(r"/dashboard/tasks/tsk_"))
    first = page.url
    expect(state(page)).to_have_text("succeeded")
    expect(page.locator("#log")).to_contain_text("step 5")
    with page.expect_download() as coming:
        page.get_by_role("link", name="Download").first.click()
    coming.value.save_as(tmp_path / "digits.txt")
    assert (tmp_path / "digits.txt").read_bytes() == b"0123456789" * 100

    page.get_by_role("button", name="Run again with other inputs").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("n (optional)").fill("2")
    dialog.get_by_role("button", name="Submit").click()
    page.wait_for_url(lambda url: url != first and "/dashboard/tasks/tsk_" in url)
    second = page.url
    expect(page.locator("#result")).to_contain_text("2")

    page.get_by_role("link", name="Tasks").first.click()
    if "viewport" in options:
        page.get_by_text("Filters", exact=True).click()
    page.get_by_label("Tool").fill("count")
    page.get_by_label("Tool").press("Enter")
    page.wait_for_url(re.compile("tool=count"))
    shared = look(page.url, **options)
    expect(shared.locator(f"a[href$='{second.rpartition('/')[2]}']").first).to_be_visible()
    expect(shared.get_by_label("Tool")).to_have_value("count")
    page.go_back()
    page.go_back()
    page.wait_for_url(second)
    expect(page.locator("#result")).to_contain_text("2")
