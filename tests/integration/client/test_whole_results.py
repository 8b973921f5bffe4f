"""Whatever a tool returned, and however its server answers, our own client and command line get all of it."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from typing import Any

import mcp_types as types
import pytest

from backburner.client import BackburnerClient
from tests import warm
from tests.deployment import ROOT, Deployment
from tests.system.interop.serving import serving

pytestmark = pytest.mark.slow

SERVER = ROOT / "tests" / "system" / "interop" / "typed_server.py"
IMAGE = base64.b64encode(b"\x89PNG" + bytes(1_999_996)).decode()


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    settings = {"supervisor__idle_exit_s": "0"}
    return Deployment(tmp_path_factory.mktemp("typed"), (SERVER,), settings)


@pytest.fixture(scope="module")
def url(typed: Deployment) -> Iterator[str]:
    """Its server over HTTP. Who works for it stays for all tests."""
    with serving(typed) as url:
        yield url


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_the_client_gets_it_in_every_dialect(typed: Deployment, url: str, transport: str) -> None:
    ways: dict[str, dict[str, Any]] = {
        "2026-07-28": {},
        "2025-11-25": {"mode": "legacy"},
        "inline": {"tasks": False},
    }
    target = url if transport == "http" else typed.stdio()
    for dialect, options in ways.items():
        async with BackburnerClient(target, **options) as client:
            handle = await client.start("write", length=1_000_000)
            assert handle.dialect == dialect
            written = await handle.result()
            assert written.structured_content == {"result": "x" * 1_000_000}
            assert [block.model_dump()["text"] for block in written.content] == ["x" * 1_000_000]
            _is_drawn(await client.call("draw", length=2_000_000))
    async with BackburnerClient(target, tasks=False) as client:
        handle = await client.start("draw_later", length=2_000_000)
        assert handle.dialect == "two-stage"
        _is_drawn(await handle.result())


def _is_drawn(result: types.CallToolResult) -> None:
    before, image, after = result.content
    assert isinstance(image, types.ImageContent)
    assert (image.mime_type, image.data == IMAGE) == ("image/png", True)
    assert [block.model_dump().get("text") for block in (before, after)] == ["before", "after"]


@pytest.mark.whole
@pytest.mark.usefixtures("url")
def test_the_command_line_prints_it(typed: Deployment) -> None:
    def backburner(*words: str) -> str:
        command = [warm.PYTHON, "-m", "backburner.cli", *words, "-t", str(SERVER)]
        ran = subprocess.run(
            command, env=typed.environment, capture_output=True, text=True, timeout=100, check=True
        )
        return ran.stdout

    called = json.loads(backburner("call", "write", "length=1000000", "--json"))
    assert called["result"] == {"result": "x" * 1_000_000}
    assert json.loads(backburner("result", called["task_id"])) == {"result": "x" * 1_000_000}
    before, image, after = json.loads(backburner("call", "draw", "length=2000000"))
    assert (before["text"], image["data"] == IMAGE, after["text"]) == ("before", True, "after")
