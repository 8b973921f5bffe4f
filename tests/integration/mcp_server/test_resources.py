"""Large results, logs and artifacts: as resources in ranges, and by signed links."""

from __future__ import annotations

import base64
import json
from urllib.parse import unquote

import httpx2
import pytest
from mcp.shared.exceptions import MCPError

from tests.deployment import Deployment
from tests.integration.mcp_server.harness import connect, make_app
from tests.integration.mcp_server.lasting import Lasting


async def test_a_large_result_comes_as_preview_and_can_be_read_whole(server: str) -> None:
    async with connect(server, "2026") as peer, httpx2.AsyncClient() as http:
        done = await peer.poll(await peer.start("big", {"size": 300_000}))
        result, task_id = done["result"], done["taskId"]
        shown = result["structuredContent"]
        assert shown["truncated"] is True
        assert len(json.dumps(result)) < 40_000
        links = {block["uri"]: block for block in result["content"] if block["type"] == "resource_link"}
        assert f"task://{task_id}/result" in links
        lines = result["content"][0]["text"].splitlines()
        assert f"task://{task_id}/result?offset=0&length=65536" in lines
        assert shown["download_url"] in lines

        text, offset = "", 0
        while True:
            read = await peer.request(
                "resources/read", {"uri": f"task://{task_id}/result?offset={offset}&length=250001"}
            )
            (part,) = read["contents"]
            text += part["text"]
            offset += part["_meta"]["length"]
            if offset == part["_meta"]["size"]:
                break
        assert json.loads(text) == "é" * 300_000

        downloaded = await http.get(shown["download_url"])
        assert downloaded.json() == "é" * 300_000
        assert downloaded.headers["content-security-policy"].startswith("sandbox")
        assert downloaded.headers["content-disposition"].startswith("attachment")
        part_of_it = await http.get(shown["download_url"], headers={"Range": "bytes=0-9"})
        assert (part_of_it.status_code, len(part_of_it.content)) == (206, 10)

        answer = await peer.tool("get_task_result", task_id=task_id)
        by_name = {artifact["name"]: artifact for artifact in answer["artifacts"]}
        data = (await http.get(by_name["data.bin"]["download_url"])).content
        assert data == b"\x00\x01" * 1000
        forged = by_name["data.bin"]["download_url"].replace("token=", "token=x")
        assert (await http.get(forged)).status_code == 404
        other = by_name["data.bin"]["download_url"].partition("?")[2]
        swapped = by_name["result.json"]["download_url"].partition("?")[0] + "?" + other
        assert (await http.get(swapped)).status_code == 404


async def test_artifacts_and_logs_are_resources_and_nobody_else_s(shared: Deployment) -> None:
    with shared.app(make_app) as app:
        async with connect(app.mcp_server(), "2025") as peer:
            task_id = await peer.start("big", {"size": 10})
            await peer.poll(task_id)
            artifact = app.service.result(task_id).artifacts[0]
            uri = f"task://{task_id}/artifacts/{artifact.artifact_id}/data.bin"
            (whole,) = (await peer.request("resources/read", {"uri": uri}))["contents"]
            assert base64.b64decode(whole["blob"]) == b"\x00\x01" * 1000
            (part,) = (await peer.request("resources/read", {"uri": f"{uri}?offset=1&length=3"}))["contents"]
            assert base64.b64decode(part["blob"]) == b"\x01\x00\x01"
            assert part["_meta"] == {"offset": 1, "length": 3, "size": 2000}

            counted = await peer.start("slow", {"n": 3})
            await peer.poll(counted)
            (logs,) = (await peer.request("resources/read", {"uri": f"task://{counted}/logs"}))["contents"]
            assert logs["text"].count("step") == 3
            templates = (await peer.request("resources/templates/list"))["resourceTemplates"]
            assert [template["name"] for template in templates] == [
                "task-result",
                "task-logs",
                "task-artifacts",
                "task-artifact",
            ]

            foreign = app.service.submit("slow", {"n": 0}, owner="somebody").task_id
            app.service.wait(foreign, 20, owner="somebody")
            said = set()
            for asked in (
                f"task://{foreign}/result",
                f"task://{foreign}/logs",
                f"task://{foreign}/artifacts",
                f"task://{'tsk_' + '0' * 36}/result",
                f"task://{task_id}/artifacts/art_0/data.bin",
                f"task://{counted}/artifacts/{artifact.artifact_id}/data.bin",
                f"task://{task_id}/artifacts/../../../../etc/passwd",
                "task://",
            ):
                with pytest.raises(MCPError) as refused:
                    await peer.request("resources/read", {"uri": asked})
                said.add((refused.value.code, refused.value.message))
            assert said == {(-32602, "Resource not found")}


NAMES = (
    "a/b.txt",
    "../../etc/passwd",
    "..",
    ".",
    "/",
    "a?b#c%2F&d=e.txt",
    "http://[",
    "data:text/plain,x",
    "two\nlines \u200b\u202e.txt",
    'quo"tes;filename=x',
    "\u00e9\U0001f600.json",
    "x" * 300,
)


async def test_an_artifact_of_any_name_can_be_read_by_each_of_its_links(
    lasting: Lasting, shared_guarded: Deployment
) -> None:
    async with connect(lasting.url(shared_guarded), "2025") as peer, httpx2.AsyncClient() as http:
        for name in NAMES:
            task = await peer.tool("submit_task", tool_name="keep", inputs={"name": name})
            done = await peer.tool("wait_for_task", task_id=task["task_id"], timeout_s=60)
            (artifact,) = done["artifacts"]
            assert artifact["name"] == name
            downloaded = await http.get(artifact["download_url"])
            assert (downloaded.status_code, downloaded.content) == (200, b"kept"), name
            for uri in (artifact["resource"], unquote(artifact["resource"]).partition("?")[0]):
                (part,) = (await peer.request("resources/read", {"uri": uri}))["contents"]
                kept = part["text"].encode() if "text" in part else base64.b64decode(part["blob"])
                assert kept == b"kept", uri


async def test_a_file_that_leads_out_of_the_task_s_folder_is_not_found(
    lasting: Lasting, shared_guarded: Deployment
) -> None:
    async with connect(lasting.url(shared_guarded), "2025") as peer, httpx2.AsyncClient() as http:
        task = await peer.tool("submit_task", tool_name="lead_out")
        done = await peer.tool("wait_for_task", task_id=task["task_id"], timeout_s=60)
        (artifact,) = done["artifacts"]
        assert (await http.get(artifact["download_url"])).status_code == 404
        with pytest.raises(MCPError, match="Resource not found"):
            await peer.request("resources/read", {"uri": artifact["resource"]})
