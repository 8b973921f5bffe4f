"""Windows of a real browser at the dashboard of a real server."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests import warm
from tests.browsing import Complaints, browser
from tests.integration.web.conftest import Served

__all__ = ["browser"]

PHONE = {"width": 390, "height": 844}
# A page rests after it was rendered: on a loaded machine for up to thirty seconds.
PATIENCE_MS = 60_000
expect.set_options(timeout=PATIENCE_MS)
Open = Callable[..., Page]


def new_link(server: Served) -> str:
    """A link that opens the dashboard once, as the command line makes it."""
    command = [warm.PYTHON, "-m", "backburner.cli", "dashboard", server.address]
    environment = server.deployment.environment
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="session")
def cookie(open_server: Served) -> dict[str, Any]:
    """What a browser has that came by a link."""
    answer = httpx2.get(new_link(open_server))
    (name, value) = next(iter(answer.cookies.items()))
    return {"name": name, "value": value, "url": open_server.address}


@pytest.fixture
def windows(browser: Browser) -> Iterator[Callable[..., tuple[BrowserContext, Page]]]:
    """Opens windows of browsers. At the end none has complained, and nobody else was asked."""
    opened: list[tuple[BrowserContext, Complaints]] = []

    def open_one(address: str, *cookies: Any, **options: Any) -> tuple[BrowserContext, Page]:
        context = browser.new_context(base_url=address, accept_downloads=True, **options)
        context.set_default_timeout(PATIENCE_MS)
        context.add_cookies([*cookies])
        page = context.new_page()
        opened.append((context, Complaints(page, address)))
        return context, page

    yield open_one
    for context, _ in opened:
        context.close()
    assert [complaint for _, complaints in opened for complaint in complaints.heard] == []
    assert [address for _, complaints in opened for address in complaints.strangers] == []


@pytest.fixture
def look(
    windows: Callable[..., tuple[BrowserContext, Page]], open_address: str, cookie: dict[str, Any]
) -> Open:
    """Opens a page of the server that asks for no tokens: `look("/dashboard/tasks", color_scheme="dark")`."""

    def open_page(path: str = "/", **options: Any) -> Page:
        _, page = windows(open_address, cookie, **options)
        page.goto(path)
        return page

    return open_page


@pytest.fixture
def look_as(windows: Callable[..., tuple[BrowserContext, Page]], guarded: str) -> Open:
    """Opens a page of the server that asks for tokens, for the bearer of one: `look_as("wall", "/")`."""

    def open_page(token: str, path: str = "/", **options: Any) -> Page:
        _, page = windows(guarded, **options)
        page.goto("/dashboard/sign-in")
        page.get_by_label("Token").fill(f"token-of-{token}")
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{guarded}/")
        if path != "/":
            page.goto(path)
        return page

    return open_page
