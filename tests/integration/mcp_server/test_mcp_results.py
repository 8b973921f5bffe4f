"""A tool that returns an MCPResult says its own outcome, to every client."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.deployment import Deployment
from tests.integration.mcp_server.harness import KINDS, Peer, connect
from tests.integration.mcp_server.lasting import Lasting
from tests.integration.mcp_server.outcome_server import SAID, result

SCRIPT = Path(__file__).with_name("outcome_server.py")
TEXT = "2 files were not copied\n1 folder was not made"
DETAILS = "a.txt, b.txt\n\nc/"
WELL = result(True).to_dict()


@pytest.fixture
def outcomes(lasting: Lasting, request: pytest.FixtureRequest) -> Iterator[Deployment]:
    with lasting.deployment(SCRIPT, getattr(request, "param", "own")) as made:
        yield made


@pytest.fixture
def server(lasting: Lasting, outcomes: Deployment) -> str:
    return lasting.url(outcomes)


def body_of(result: dict[str, Any]) -> Any:
    """What a result says, without what a framework puts around it."""
    said = result.get("structuredContent") or json.loads(result["content"][-1]["text"])
    return {key: value for key, value in said.items() if key not in ("job_id", "estimated_runtime_seconds")}


def in_form(said: dict[str, Any]) -> dict[str, Any]:
    """The messages of a framework's own rendering may have `details: null`."""
    messages = [{key: value for key, value in one.items() if value is not None} for one in said["messages"]]
    return {**said, "messages": messages}


async def task_of(peer: Peer, name: str, **arguments: Any) -> dict[str, Any]:
    """What the task tools say of a task that is over."""
    submitted = await peer.tool("submit_task", tool_name=name, inputs=arguments)
    told: dict[str, Any] = await peer.tool("wait_for_task", task_id=submitted["task_id"], timeout_s=50)
    return told


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize("outcomes", KINDS, indirect=True)
async def test_a_failure_is_one_on_each_framework_however_it_is_said(outcomes: Deployment) -> None:
    async with connect(outcomes.stdio(), "2025", tasks=False) as peer:
        for name in ("copy", "copy_async", "copy_as_dict", "copy_unannotated"):
            held = await peer.call(name)
            assert held["isError"] is True, name
            assert in_form(body_of(held)) == SAID, name
            task = await task_of(peer, name)
            assert task["state"] == "failed", name
            assert task["error"] == {"type": "tool_error", "message": TEXT, "exception": "MCPResult"}
            assert in_form(task["result"]) == SAID

            assert {key: held[key] for key in SAID} == SAID, name

            held = await peer.call(name, {"well": True})
            assert held["isError"] is False, name
            assert in_form(body_of(held)) == WELL, name
            assert {key: held[key] for key in WELL} == WELL, name
        fast = await peer.call("copy_fast", {"well": True})
        assert {key: fast[key] for key in WELL} == WELL
        ordinary = await peer.call("ordinary")
        assert ordinary["isError"] is False
        assert "success" not in ordinary
        assert (await task_of(peer, "ordinary"))["state"] == "succeeded"


async def test_a_failure_is_completed_with_an_error_in_2026(server: str) -> None:
    async with connect(server, "2026") as peer:
        done = await peer.poll(await peer.start("copy"))
        assert done["status"] == "completed"
        assert done["result"]["isError"] is True
        assert done["result"]["structuredContent"] == SAID
        assert done["result"]["content"][0]["text"] == TEXT
        well = await peer.poll(await peer.start("copy", {"well": True}))
        assert well["result"]["isError"] is False
        assert well["result"]["structuredContent"] == WELL


async def test_a_failure_is_failed_in_2025(server: str) -> None:
    async with connect(server, "2025") as peer:
        task_id = await peer.start("copy_async")
        assert (await peer.poll(task_id))["status"] == "failed"
        told = await peer.request("tasks/result", {"taskId": task_id})
        assert told["isError"] is True
        assert told["structuredContent"] == SAID


async def test_behind_a_handle_it_is_the_result_itself(server: str) -> None:
    # Who polls is told of jobs, in notifications that the protocol itself does not have.
    async with connect(server, "2025", tasks=False, check=False) as peer:
        for well, said in ((False, SAID), (True, WELL)):
            job_id = (await peer.call("copy_later", {"well": well}))["structuredContent"]["data"]["job_id"]
            await peer.tool("wait_for_task", task_id=job_id, timeout_s=50)
            polled = await peer.request("tools/poll_result", {"job_id": job_id})
            assert polled["data"]["status"] == "complete"
            assert polled["data"]["result"] == said


def run(deployment: Deployment, target: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a verb of the command line to its end."""
    command = [warm.BACKBURNER, *words, "--target", str(target)]
    return subprocess.run(
        command, env=deployment.environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_error_has_the_details_and_the_command_line_says_that_it_failed(
    outcomes: Deployment,
) -> None:
    backburner = partial(run, outcomes, SCRIPT)
    failed = backburner("call", "copy")
    assert failed.returncode == 1, failed.stderr
    assert "2 files were not copied" in failed.stderr
    (task,) = json.loads(backburner("ls", "--limit", "1", "--json").stdout)["tasks"]
    shown = json.loads(backburner("show", task["task_id"], "--json").stdout)
    error = shown["error"]
    assert (error["message"], error["details"]) == (TEXT, DETAILS)
    assert error["data"] == {"mcp_result": SAID}

    well = backburner("call", "copy", "well=true", "--json")
    assert well.returncode == 0, well.stderr
    assert json.loads(well.stdout)["result"] == WELL


async def test_it_is_tried_again_as_any_failure_of_the_tool_is(server: str) -> None:
    async with connect(server, "2025", tasks=False) as peer:
        for name, attempt in (("third_time", 3), ("any_failure", 2)):
            task = await task_of(peer, name)
            assert (task["state"], task["result"]["data"]) == ("succeeded", {"attempt": attempt})
            assert (await peer.tool("get_task_status", task_id=task["task_id"]))["attempt"] == attempt
        task = await task_of(peer, "copy")
        assert (await peer.tool("get_task_status", task_id=task["task_id"]))["attempt"] == 1


async def test_secrets_stay_secret_and_much_data_is_kept_as_an_artifact(server: str) -> None:
    async with connect(server, "2025", tasks=False) as peer:
        told = await peer.call("tell_secret", {"key": "s3cr3t-key"})
        assert told["isError"] is True
        assert "s3cr3t-key" not in json.dumps(told)

        task = await task_of(peer, "large")
        assert (task["state"], task["error"]["message"]) == ("failed", "too many")
        (artifact,) = task["artifacts"]
        assert task["result"]["messages"] == [{"type": "error", "text": "too many"}]
        assert task["result"]["data"]["artifact_id"] == artifact["artifact_id"]

        crooked = await task_of(peer, "crooked")
        assert crooked["state"] == "failed"
        assert "messages" in crooked["error"]["message"]


async def test_a_preview_of_much_data_leaves_the_tool_its_own_word(server: str) -> None:
    async with connect(server, "2025", tasks=False) as peer:
        told = await peer.call("plenty")
        said = told["structuredContent"]
        assert (told["isError"], said["success"]) == (False, True)
        assert said["messages"] == [{"type": "success", "text": "all are there"}]
        assert said["data"]["truncated"] is True

        handed_out = await peer.call("plenty", meta={"async": True})
        job_id = handed_out["data"]["job_id"]
        await peer.tool("wait_for_task", task_id=job_id, timeout_s=60)
        polled = await peer.request("tools/poll_result", {"job_id": job_id})
        assert polled["data"]["result"]["messages"] == said["messages"]


def test_the_example_of_the_guide(deployment: Deployment, tmp_path: Path) -> None:
    guide = (Path(__file__).parents[3] / "docs" / "guides" / "results.md").read_text()
    (code,) = re.findall(r"```python\n([^`]*MCPResult[^`]*)```", guide)
    app = tmp_path / "backup.py"
    app.write_text(code)
    well = run(deployment, app, "call", "back_up", 'folders:=["/home"]', "--json")
    assert json.loads(well.stdout)["result"] == {
        "success": True,
        "data": {"done": ["/home"]},
        "messages": [{"type": "info", "text": "1 of 1 folders"}, {"type": "success", "text": "All is safe"}],
    }
    failed = run(deployment, app, "call", "back_up", 'folders:=["/home", "/proc"]', "--json")
    assert failed.returncode == 1
    assert json.loads(failed.stdout)["error"]["message"] == "/proc cannot be backed up"
