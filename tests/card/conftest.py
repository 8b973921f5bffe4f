"""A server with cards, and a browser, for the tests of the card."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from backburner.mcp.serving.token_file import hash_token
from tests import services
from tests.card.chat import Chat, Connection, connected
from tests.deployment import Deployment
from tests.mcp_server.lasting import Lasting

SERVER = Path(__file__).with_name("card_server.py")
_FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync --disable-breakpad"
)
# A loaded machine is slower than what Playwright waits for by itself.
expect.set_options(timeout=20_000)


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lasting]:
    with Lasting(tmp_path_factory.mktemp("cards")) as made:
        yield made


@pytest.fixture
def deployment(lasting: Lasting) -> Iterator[Deployment]:
    """The store of a module's tests; Ann and Bob may come in."""
    with lasting.deployment(SERVER) as made:
        tokens = made.folder / "tokens"
        tokens.write_text("\n".join(f"{name} {hash_token(name)}" for name in ("ann", "bob")))
        made.settings["http__auth__tokens"] = str(tokens)
        yield made


@pytest.fixture
def url(lasting: Lasting, deployment: Deployment) -> str:
    """Its server over HTTP."""
    return lasting.url(deployment)


@pytest.fixture
def ann(url: str) -> Iterator[Connection]:
    """Her host, which shows pages."""
    with connected(url, token="ann") as connection:
        yield connection


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


@pytest.fixture
def open_chat(browser: Browser, ann: Connection) -> Iterator[Callable[..., Chat]]:
    """Opens chats. At the end no browser has complained, and nobody else was asked for anything."""
    opened: list[Chat] = []

    def open_one(server: Connection = ann, **options: Any) -> Chat:
        opened.append(Chat(browser, server, **options))
        return opened[-1]

    yield open_one
    for chat in opened:
        chat.close()
    assert [complaint for chat in opened for complaint in chat.complaints] == []
    assert [address for chat in opened for address in chat.requests] == []


@pytest.fixture
def chat(open_chat: Callable[..., Chat]) -> Chat:
    return open_chat()
