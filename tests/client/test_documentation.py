"""What docs/client.md shows works."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.deployment import Deployment

ROOT = Path(__file__).parents[2]


async def test_the_snippets_run(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "client.md").read_text()
    client, display, sdk, host, acknowledged = re.findall(r"```py\n(.*?)```", page, re.DOTALL)
    (deployment.folder / "README.md").write_text("three words here")
    monkeypatch.chdir(deployment.folder)
    with deployment.http() as server:
        for snippet in (client, display, sdk, acknowledged):
            names: dict[str, Any] = {}
            exec(snippet.replace("http://127.0.0.1:8765/mcp", server.url), names)
            await names["main"]()
    said = capsys.readouterr().out
    assert "completed" in said
    assert "counted to 3" in said
    exec(host, {})
