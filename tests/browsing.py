"""A real browser, and windows in it that note what the browser complains of."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

from tests import services

_FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync --disable-breakpad"
)
_REFUSED = re.compile(r"Failed to load resource: the server responded with a status of 4\d\d")
# A loaded machine is slower than what Playwright waits for by itself.
expect.set_options(timeout=20_000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """For a module alone: no test that is a coroutine can run beside it."""
    program = shutil.which("chromium")
    if program is None:
        services.unavailable("Chromium is not installed: on Debian, `apt-get install chromium`")
    before = set(psutil.Process().children())
    with sync_playwright() as playwright:
        driver = set(psutil.Process().children()) - before
        services.running.update(process.pid for process in driver)
        made = playwright.chromium.launch(executable_path=program, args=_FLAGS.split())
        yield made
        made.close()
    services.running.difference_update(process.pid for process in driver)


class Complaints:
    """What a browser complains of on a page, and whom else it asks for anything."""

    def __init__(self, page: Page, *own: str) -> None:
        """`own` are the beginnings of the addresses that the page may ask for."""
        self.heard: list[str] = []
        self.strangers: list[str] = []
        self._own = (*own, "data:", "blob:")
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.heard.append(str(error)))
        page.on("dialog", self._dialog)
        page.on("request", self._requested)

    def _said(self, message: ConsoleMessage) -> None:
        # Browsers note what an API refuses, too; that is for the page to say, and no fault of it.
        refused = _REFUSED.match(message.text) and "/api/v1/" in message.location["url"]
        if message.type in ("error", "warning") and not refused:
            self.heard.append(message.text)

    def _dialog(self, dialog: Any) -> None:
        self.heard.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _requested(self, request: Request) -> None:
        if not request.url.startswith(self._own):
            self.strangers.append(request.url)
