"""Requests that nobody should send: each gets the right JSON-RPC error, and the server lives on."""

from __future__ import annotations

import random
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from tests.deployment import Deployment
from tests.integration.mcp_server.harness import connect

UNKNOWN = "tsk_" + "0" * 36
_INVALID, _NOT_FOUND = -32602, -32601

_WRONG_VALUES: list[Any] = [None, 7, -1.5, True, [], {}, ["a"], {"a": 1}]
_WRONG_TASKS: list[Any] = [7, "yes", [1], {"ttl": "x"}]
_WRONG_CURSORS: list[Any] = [7, [], "tampered", "x" * 10_000]
_WRONG_IDS = [
    UNKNOWN,
    "",
    "tsk_",
    "x" * 100_000,
    "../../etc/passwd",
    "'; DROP TABLE tasks; --",
    "\u202e\U0001f600",
]


def hostile_requests(chance: random.Random) -> list[tuple[str, dict[str, Any], int]]:
    """(method, parameters, the code that the answer must have), more than two hundred."""
    requests: list[tuple[str, dict[str, Any], int]] = []
    for method in ("tasks/get", "tasks/cancel"):
        requests += [(method, {"taskId": value}, _INVALID) for value in (*_WRONG_VALUES, *_WRONG_IDS)]
        requests.append((method, {}, _INVALID))
    for value in (*_WRONG_VALUES, *_WRONG_IDS):
        requests.append(("tools/call", {"name": value if not isinstance(value, str) else None}, _INVALID))
        requests.append(("resources/read", {"uri": f"task://{value}/result"}, _INVALID))
        requests.append(("resources/read", {"uri": f"task://{UNKNOWN}/logs?offset={value}x"}, _INVALID))
    for value in (7, "text", ["list"], True):
        requests.append(("tools/call", {"name": "slow", "arguments": value}, _INVALID))
        requests.append(("tools/call", {"name": "submit_task", "arguments": value}, _INVALID))
    for _ in range(60):
        name = "".join(chance.choices("abcdefghij/_", k=chance.randint(1, 30)))
        requests.append((f"tasks/{name}", {"taskId": UNKNOWN, name: name}, _NOT_FOUND))
    for _ in range(60):
        noise = "".join(chance.choices("0123456789ABCDEFGHJKMNPQRSTVWXYZ", k=36))
        requests.append(("tasks/get", {"taskId": f"tsk_{noise}"}, _INVALID))
    return requests


_ERA_ONLY: dict[str, list[tuple[str, dict[str, Any], int]]] = {
    "2026": [
        *(
            ("tasks/update", {"taskId": UNKNOWN, "inputResponses": value}, _INVALID)
            for value in _WRONG_VALUES
        ),
        *(("tasks/update", {"taskId": value, "inputResponses": {}}, _INVALID) for value in _WRONG_IDS),
        ("tasks/update", {"taskId": UNKNOWN}, _INVALID),
        ("tasks/result", {"taskId": UNKNOWN}, _NOT_FOUND),
        ("tasks/list", {}, _NOT_FOUND),
        ("tools/call", {"name": "slow", "requestState": "tampered"}, _INVALID),
        ("subscriptions/listen", {"notifications": {"taskIds": "all"}}, _INVALID),
        ("subscriptions/listen", {"notifications": {"taskIds": [1]}}, _INVALID),
        ("subscriptions/listen", {"notifications": {"taskIds": [UNKNOWN] * 1000}}, _INVALID),
    ],
    "2025": [
        *(("tasks/result", {"taskId": value}, _INVALID) for value in (*_WRONG_VALUES, *_WRONG_IDS)),
        *(("tasks/list", {"cursor": value}, _INVALID) for value in _WRONG_CURSORS),
        *(("tools/call", {"name": "slow", "task": value}, _INVALID) for value in _WRONG_TASKS),
        ("tools/call", {"name": "slow", "task": {"ttl": -5}}, _INVALID),
        ("tasks/update", {"taskId": UNKNOWN, "inputResponses": {}}, _NOT_FOUND),
    ],
}


@pytest.mark.whole(but_first=2)
@pytest.mark.parametrize("era", ["2025", "2026"])
@pytest.mark.parametrize("deployment", ["own", "mcpserver", "fastmcp"], indirect=True)
async def test_each_hostile_request_gets_the_right_error(deployment: Deployment, era: str) -> None:
    chance = random.Random(4)
    requests = [*hostile_requests(chance), *_ERA_ONLY[era]]
    chance.shuffle(requests)
    assert len(requests) > 200
    wrong: list[tuple[Any, ...]] = []
    tasks_2026 = era == "2026"
    async with connect(deployment.stdio(), era) as peer:
        for method, params, code in requests:
            if method == "tools/call" and params.get("requestState") and not tasks_2026:
                continue
            try:
                result = await peer.request(method, params)
                wrong.append((method, str(params)[:80], "a result", str(result)[:200]))
            except MCPError as error:
                if error.code != code:
                    wrong.append((method, str(params)[:80], error.code, error.message[:200]))
        assert not wrong, "\n".join(map(str, wrong))
        assert (await peer.poll(await peer.start("slow", {"n": 1})))["status"] == "completed"
        assert len((await peer.tool("list_tasks"))["tasks"]) == 1
