"""What docs/guides/client.md shows works."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from backburner.mcp.transport.auth import hash_token
from tests.deployment import Deployment

ROOT = Path(__file__).parents[3]


async def test_the_snippets_run(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "guides" / "client.md").read_text()
    (deployment.folder / "README.md").write_text("three words here")
    monkeypatch.chdir(deployment.folder)
    with deployment.http() as server:
        for snippet in re.findall(r"```py\n(.*?)```", page, re.DOTALL):
            names: dict[str, Any] = {}
            exec(snippet.replace("http://127.0.0.1:8765/mcp", server.url), names)
            if "main" in names:
                await names["main"]()
    said = capsys.readouterr().out
    assert "completed" in said
    assert "counted to 3" in said
    assert len(re.findall("^Your name", said, re.MULTILINE)) == 2  # asked by a callback, and by hand
    assert "Hello, Ada!" in said
    assert "3.0 3.0" in said or "3 3" in said  # the progress of the SDK's client


async def test_a_token_that_is_not_known_is_told_as_the_page_says(
    deployment: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "guides" / "client.md").read_text()
    (snippet,) = [code for code in re.findall(r"```py\n(.*?)```", page, re.DOTALL) if "NotAuthorized" in code]
    (deployment.folder / "tokens").write_text(f"bob  {hash_token('token-of-bob')}\n")
    deployment.settings["http__auth__tokens"] = str(deployment.folder / "tokens")
    with deployment.http() as server:
        names: dict[str, Any] = {}
        exec(snippet.replace("http://127.0.0.1:8765/mcp", server.url), names)
        await names["main"]()
    assert capsys.readouterr().out.startswith("not_authorized The server http://127.0.0.1:")
