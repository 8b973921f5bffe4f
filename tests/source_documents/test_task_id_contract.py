"""The TaskId contract, server half: the validation checklist of `task-id-contract.md`, over a real pipe."""

import json
from pathlib import Path
from typing import Any

from tests.deployment import Deployment
from tests.services import wait_until
from tests.source_documents.pipe import Pipe, serving


def run(pipe: Pipe, request_id: str, arguments: dict[str, Any], **meta: Any) -> dict[str, Any]:
    return pipe.exchange(
        {
            "jsonrpc": "2.0",
            "id": request_id,
            "method": "tools/call",
            "params": {"name": "codex_app_window_run", "arguments": arguments, "_meta": meta},
        }
    )


def lines(folder: Path) -> list[dict[str, Any]]:
    log = folder / "state" / "ui-prompts.jsonl"
    return [json.loads(line) for line in log.read_text("utf-8").splitlines()] if log.exists() else []


def stored(folder: Path, task_id: str) -> dict[str, Any]:
    tasks = json.loads((folder / "state" / "mcp_tasks.v1.json").read_text("utf-8"))["mcpTasks"]
    (found,) = [task for task in tasks if task["id"] == task_id]
    return dict(found)


def test_the_validation_checklist(deployment: Deployment, tmp_path: Path) -> None:
    with serving(deployment) as pipe:
        pipe.initialize(experimental={"tool_result": {}})

        # 1. Call async tool without `_meta.taskId`: the server rejects.
        bad: list[dict[str, Any]] = [{}, *({"taskId": given} for given in ("", "  ", 7, None))]
        for number, meta in enumerate(bad):
            refused = run(pipe, f"bad-{number}", {"prompt": "x"}, **meta)
            assert refused["error"]["code"] == -32602
            assert "_meta.taskId" in refused["error"]["message"]

        # 2. Call with `taskId`: an immediate acknowledgement, and the task is pending.
        flag = tmp_path / "go on"
        asked = {"prompt": "Summarise", "flag": str(flag)}
        ack = run(pipe, "call", asked, taskId="host-task-1", progressToken="p")["result"]
        assert ack["isError"] is False
        assert "host-task-1" in ack["content"][0]["text"]
        assert wait_until(lambda: stored(tmp_path, "host-task-1")["status"] == "running")
        assert lines(tmp_path) == []

        # The same id again is the same task; with other inputs it is refused.
        again = run(pipe, "again", asked, taskId="host-task-1")["result"]
        assert again["data"]["job_id"] == ack["data"]["job_id"]
        assert run(pipe, "other", {"prompt": "Other"}, taskId="host-task-1")["result"]["isError"] is True

        # 3. When the task finishes, the tool's result is `prompt.markdown` of the entry.
        flag.touch()
        assert wait_until(lambda: lines(tmp_path))
        (line,) = lines(tmp_path)
        expected = "## Done\n\nSummarise 交互待办"
        assert line["type"] == "ui_prompt"
        assert line["action"] == "request"
        assert line["requestId"] == "host-task-1"
        assert line["prompt"]["kind"] == "result"
        assert line["prompt"]["markdown"] == expected

        # 4. The panel, which reads the same files, shows the same output.
        assert wait_until(lambda: stored(tmp_path, "host-task-1")["status"] == "completed")
        assert stored(tmp_path, "host-task-1")["resultText"] == expected

        # No notifications for such calls, though the client could take them and gave a token.
        pipe.request("ping")
        assert [message for message in pipe.heard if "method" in message] == []


def test_switching_sessions_does_not_stop_completion(deployment: Deployment, tmp_path: Path) -> None:
    """Item 5 of the checklist: nobody is connected when the task ends, and the line is written at once."""
    flag = tmp_path / "go on"
    with serving(deployment) as pipe:
        pipe.initialize()
        run(pipe, "call", {"prompt": "Later", "flag": str(flag)}, taskId="host-task-2")
        assert wait_until(lambda: stored(tmp_path, "host-task-2")["status"] == "running")
        pipe.kill()
    flag.touch()
    assert wait_until(lambda: lines(tmp_path))
    with serving(deployment) as other:
        other.initialize()
        other.request("tools/list")
        assert wait_until(lambda: stored(tmp_path, "host-task-2")["status"] == "completed")
    assert [line["requestId"] for line in lines(tmp_path)] == ["host-task-2"]


def test_a_start_writes_what_a_killed_host_could_not(deployment: Deployment, tmp_path: Path) -> None:
    """Everything was killed between the end of the task and its line: the next server writes it, once."""
    state = tmp_path / "state"
    with serving(deployment) as pipe:
        pipe.initialize()
        run(pipe, "call", {"prompt": "Done"}, taskId="host-task-3")
        entered = (state / "mcp_tasks.v1.json").read_text()
        assert wait_until(lambda: stored(tmp_path, "host-task-3")["status"] == "completed")
        pipe.kill()
    deployment.close()  # ends the supervisor too
    (state / "ui-prompts.jsonl").unlink()
    (state / "mcp_tasks.v1.json").write_text(entered)
    with serving(deployment) as pipe:
        pipe.initialize()
        pipe.request("tools/list")
        assert wait_until(lambda: lines(tmp_path))
        assert wait_until(lambda: stored(tmp_path, "host-task-3")["status"] == "completed")
    assert [line["requestId"] for line in lines(tmp_path)] == ["host-task-3"]
