"""Pages that go on by themselves, and what becomes of them when their server goes away."""

from __future__ import annotations

import contextlib
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, expect

from tests import services
from tests.deployment import Deployment
from tests.integration.web.conftest import PROGRAM, Api, Served
from tests.integration.web.dashboard.conftest import Open, new_link

AWAY = "Server not reachable"


def test_a_page_moves_while_one_looks_and_keeps_the_focus(look: Open, local: Api) -> None:
    page = look("/dashboard/queues")
    cell = page.locator("tr", has_text="cpu_heavy")
    page.get_by_role("link", name="Queues").focus()
    local.post("/queues/cpu_heavy/pause")
    try:
        expect(cell).to_contain_text("aused")
        expect(page.get_by_role("link", name="Queues")).to_be_focused()
    finally:
        local.post("/queues/cpu_heavy/resume")
    expect(cell).not_to_contain_text("Paused")


@pytest.mark.whole
def test_a_page_waits_for_a_server_that_is_away_and_goes_on_with_the_next(
    browser: Browser, tmp_path: Path
) -> None:
    made = Deployment(tmp_path, (PROGRAM,), {"supervisor__idle_exit_s": "0"})
    with made, made.http() as server, browser.new_context(base_url=server.address) as context:
        services.running.add(server.pid)
        page = context.new_page()
        page.goto(new_link(Served(server.address, made)))
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        server.stop()
        expect(page.get_by_text(AWAY)).to_be_visible()
        server.start()
        services.running.add(server.pid)
        expect(page.get_by_text(AWAY)).to_be_hidden()
        with contextlib.closing(Api(server.address)) as api:
            api.finished("count")
        page.goto("/dashboard/tasks")
        expect(page.get_by_role("link", name="count").first).to_be_visible()


def test_a_stream_is_for_who_may_see_the_page(guarded: str, open_address: str) -> None:
    for address in (guarded, open_address):
        answer = httpx2.get(f"{address}/", params={"live": "1"})
        assert answer.status_code == 303
