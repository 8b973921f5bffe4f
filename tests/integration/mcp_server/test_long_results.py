"""Results over the token budget: head, tail and shape, and any part of them by path and range."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from mcp.shared.exceptions import MCPError

from tests.deployment import Deployment
from tests.integration.mcp_server.harness import Peer, connect
from tests.integration.mcp_server.test_auth import token_file
from tests.system.interop.serving import serving

SCRIPT = Path(__file__).with_name("many_server.py")
#: One result is too large for the store, and one is not.
ROWS, LINES = 20_000, 15_000
BUDGET = 80_000
UNKNOWN = "tsk_" + "0" * 36


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("long")
    settings = {
        "mcp__patience_s": "60",
        "supervisor__idle_exit_s": "0",
        "http__auth__tokens": token_file(folder, alice="token-of-alice", bob="token-of-bob"),
    }
    with serving(Deployment(folder, (SCRIPT,), settings), token="token-of-alice") as address:
        yield address


async def finished(peer: Peer, name: str, **inputs: Any) -> str:
    task_id: str = (await peer.tool("submit_task", tool_name=name, inputs=inputs))["task_id"]
    await peer.tool("wait_for_task", task_id=task_id)
    return task_id


async def part(peer: Peer, task_id: str, **asked: Any) -> dict[str, Any]:
    result: dict[str, Any] = await peer.tool("get_task_result", task_id=task_id, **asked)
    return result


@pytest.mark.parametrize(("name", "inputs"), [("table", {"rows": ROWS}), ("story", {"lines": LINES})])
async def test_a_long_result_is_shown_by_its_ends_and_shape_and_never_whole(
    url: str, name: str, inputs: dict[str, Any]
) -> None:
    async with connect(url, "2025", tasks=False, token="token-of-alice") as peer:
        held = await peer.call(name, inputs)
        task_id = (await peer.tool("list_tasks", limit=1))["tasks"][0]["task_id"]
        waited = await peer.call("wait_for_task", {"task_id": task_id})
        shapes = {
            "table": "{total: number, rows: [20000 × {id: number, name: text}]}",
            "story": "text, 15000 lines, ",
        }
        for answer in (held, waited):
            text = "\n".join(block.get("text", "") for block in answer["content"])
            assert shapes[name] in text
            assert f"get_task_result of task_id {task_id} and a path such as" in text
            assert f"task://{task_id}/result?offset=0&length=65536" in text.splitlines()
            ends = ("line 0: é", "line 14999: é") if name == "story" else ("row 0", "row 19999")
            assert all(end in text for end in ends)
            assert len(json.dumps(answer)) < 20_000
        assert held["structuredContent"]["shape"].startswith(shapes[name])
        assert waited["structuredContent"]["result"]["tail"] == held["structuredContent"]["tail"]


async def test_any_part_is_read_by_the_tool_and_as_a_resource(url: str) -> None:
    async with connect(url, "2026", tasks=False, token="token-of-alice") as peer:
        table = await finished(peer, "table", rows=ROWS)
        rows = await part(peer, table, path="$.rows[10:12].name")
        assert rows["result"] == ["row 10", "row 11"]
        assert (await part(peer, table, path="rows[-1]['id']"))["result"] == ROWS - 1
        assert (await part(peer, table, path='$["total"]'))["result"] == ROWS
        uri = f"task://{table}/result"
        (read,) = (
            await peer.request("resources/read", {"uri": f"{uri}?path={quote('$.rows[10:12].name')}"})
        )["contents"]
        assert (json.loads(read["text"]), read["mimeType"]) == (["row 10", "row 11"], "application/json")
        templates = (await peer.request("resources/templates/list"))["resourceTemplates"]
        assert "task://{task_id}/result{?path,offset,length}" in {one["uriTemplate"] for one in templates}

        everything = await part(peer, table, path="$.rows")
        assert everything["shape"] == "[20000 × {id: number, name: text}]"
        assert len(everything["result"].encode()) <= BUDGET
        (most,) = (await peer.request("resources/read", {"uri": uri}))["contents"]
        assert len(most["text"].encode()) <= BUDGET

        story, text, offset = await finished(peer, "story", lines=LINES), "", 0
        while True:
            piece = await part(peer, story, offset=offset, length=50_001)
            text += piece["result"]
            offset = piece["range"]["offset"] + piece["range"]["length"]
            if offset == piece["range"]["size"]:
                break
        assert text == "\n".join(f"line {i}: é" for i in range(LINES))


async def test_what_is_not_there_is_said_clearly_and_what_is_another_s_is_not_there(url: str) -> None:
    async with (
        connect(url, "2025", tasks=False, token="token-of-alice") as alice,
        connect(url, "2025", tasks=False, token="token-of-bob") as bob,
    ):
        table = await finished(alice, "table", rows=ROWS)
        for asked, words in (
            ({"path": "$.lines"}, "$ has no key 'lines'; it has: 'total', 'rows'"),
            ({"path": "$.rows[20000]"}, "$.rows has 20000 items, and the first is [0]"),
            ({"path": "$.rows[30000:]"}, "$.rows has 20000 items, and none in that range"),
            ({"path": "$.rows[*].size"}, "has no key 'size'"),
            ({"path": "$.total[0]"}, "$.total is a number, and has no items"),
            ({"path": "$.rows[?(@.id>3)]"}, "is no step; write .name"),
            ({"offset": 10**9}, "bytes long"),
        ):
            refused = await alice.call("get_task_result", {"task_id": table, **asked})
            assert refused["structuredContent"]["error"]["code"] == "no_such_part", asked
            assert words in refused["content"][0]["text"]
            query = "&".join(f"{key}={quote(str(value))}" for key, value in asked.items())
            with pytest.raises(MCPError) as error:
                await alice.request("resources/read", {"uri": f"task://{table}/result?{query}"})
            assert (error.value.code, words in error.value.message) == (-32602, True)
        for asked in ({"offset": -1}, {"length": 0}, {"path": "x" * 1001}):
            refused = await alice.call("get_task_result", {"task_id": table, **asked})
            assert refused["structuredContent"]["error"]["code"] == "invalid_inputs"
        with pytest.raises(MCPError, match="only results have paths"):
            await alice.request("resources/read", {"uri": f"task://{table}/logs?path=$.x"})

        said = set()
        for task_id in (table, UNKNOWN):
            answers = [
                await bob.call("get_task_result", {"task_id": task_id, "path": "$.lines"}),
                await bob.call("wait_for_task", {"task_ids": [task_id]}),
            ]
            with pytest.raises(MCPError) as error:
                await bob.request("resources/read", {"uri": f"task://{task_id}/result?path=$.lines"})
            codes = [answer["structuredContent"]["error"]["code"] for answer in answers]
            said.add((*codes, error.value.message))
        assert said == {("task_not_found", "task_not_found", "Resource not found")}
