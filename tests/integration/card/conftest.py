"""A server with cards, and a browser, for the tests of the card."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from backburner.mcp.transport.auth import hash_token
from tests.browsing import browser
from tests.deployment import Deployment
from tests.integration.card.chat import Chat, Connection, connected
from tests.integration.mcp_server.lasting import Lasting

__all__ = ["browser"]

SERVER = Path(__file__).with_name("card_server.py")


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
        made.settings["mcp__client_patience"] = '{"hasty-chat": 1, "mcp": "forever"}'
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
    assert [complaint for chat in opened for complaint in chat.complaints.heard] == []
    assert [address for chat in opened for address in chat.complaints.strangers] == []


@pytest.fixture
def chat(open_chat: Callable[..., Chat]) -> Chat:
    return open_chat()
