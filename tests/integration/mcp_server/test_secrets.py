"""Inputs that are marked as secret show nowhere, whatever goes wrong with them."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mcp.shared.exceptions import MCPError

from tests import warm
from tests.deployment import Deployment
from tests.integration.mcp_server.harness import connect

SCRIPT = Path(__file__).with_name("guarded.py")
SECRET = 'hunter2-"weak"\n' + "it goes on for so long that whoever quotes it cuts it in the middle " * 2
#: Any of these is enough to say that it was shown.
PARTS = ("hunter2", "it goes on for so", "in the middle")


async def everything_said(guarded: Deployment, task_ids: Sequence[str]) -> dict[str, str]:
    """All that a client, an operator and a host that reads files can see of each task."""
    said: dict[str, list[Any]] = {task_id: [] for task_id in task_ids}
    async with connect(guarded.stdio(), "2025", check=False) as peer:
        for task_id, of_task in said.items():
            of_task.append(await peer.tool("wait_for_task", task_id=task_id, timeout_s=60))
            of_task.append(await peer.request("tasks/get", {"taskId": task_id}))
            of_task.append(await peer.request("resources/read", {"uri": f"task://{task_id}/result"}))
            try:
                of_task.append(await peer.request("tasks/result", {"taskId": task_id}))
            except MCPError as error:
                of_task.append([error.message, error.data])
        of_all = [await peer.tool("list_tasks"), list(peer.wire.notifications), await ran(guarded, "ls")]
    of_all += [path.read_text() for path in (guarded.folder / "state").glob("[!.]*.json*")]
    for task_id, of_task in said.items():
        for words in (["show", task_id], ["show", task_id, "--json"], ["result", task_id]):
            of_task.append(await ran(guarded, *words))
    return {task_id: json.dumps([of_task, of_all]) for task_id, of_task in said.items()}


async def ran(guarded: Deployment, *words: str) -> list[str]:
    """What a verb of the command line says."""
    command = [warm.PYTHON, "-m", "backburner.cli", *words, "-t", str(SCRIPT)]
    done = await asyncio.to_thread(
        subprocess.run, command, env=guarded.environment, capture_output=True, text=True, check=False
    )
    return [done.stdout, done.stderr]


async def test_a_tool_that_fails_does_not_show_its_secrets(shared_guarded: Deployment) -> None:
    failed = []
    async with connect(shared_guarded.stdio(), "2025") as peer:
        for fails in ("", "exception", "validation", "protocol"):
            password = SECRET if fails == "" else SECRET.replace("weak", "firm")
            inputs = {"password": password, "fails": fails}
            started = await peer.call("login", inputs, meta={"taskId": f"host-{fails}"})
            failed.append(started["data"]["job_id"])
            done = await peer.tool("wait_for_task", task_id=failed[-1], timeout_s=60)
            assert done["state"] == "failed"
    for task_id, said in (await everything_said(shared_guarded, failed)).items():
        assert task_id in said
        assert [part for part in PARTS if part in said] == []
        assert "***" in said


async def test_a_request_that_is_refused_does_not_quote_its_secrets(shared_guarded: Deployment) -> None:
    async with connect(shared_guarded.stdio(), "2025") as peer:
        for tool, inputs in (
            ("login", {"password": ["hunter2"]}),
            ("login", {"password": {"a": "hunter2"}}),
            ("login", {"password": "hunter2", "user": "eve"}),
            ("login", {"password": "hunter2", "extra": 1}),
            ("one_of_two", {"key": "hunter2", "phrase": "hunter2"}),
            ("one_of_two", {"other": "nothing", "phrase": "hunter2", "key": "hunter2"}),
        ):
            for answer in (
                await peer.call("submit_task", {"tool_name": tool, "inputs": inputs}),
                await peer.call(tool, inputs),
            ):
                assert answer["isError"] is True
                assert answer["structuredContent"]["error"]["code"] == "invalid_inputs"
                assert "hunter2" not in json.dumps(answer)
        for wrong in ("hunter2", ["hunter2"], 7):
            answer = await peer.call("submit_task", {"tool_name": "login", "inputs": wrong})
            assert "hunter2" not in json.dumps(answer)


async def test_what_is_wrong_with_other_inputs_is_still_told(shared_guarded: Deployment) -> None:
    async with connect(shared_guarded.stdio(), "2025") as peer:
        answer = await peer.call("login", {"password": "hunter2", "user": "eve"})
        assert "'eve' is not one of ['ada', 'bob']" in answer["content"][0]["text"]
        answer = await peer.call("login", {"user": "ada"})
        assert "'password' is a required property" in answer["content"][0]["text"]
