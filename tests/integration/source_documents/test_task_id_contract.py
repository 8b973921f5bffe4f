"""The TaskId contract, server half: the validation checklist of `task-id-contract.md`, over a real pipe."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.deployment import Deployment
from tests.integration.source_documents.http_session import serving_http
from tests.integration.source_documents.pipe import Pipe, serving
from tests.services import ended, wait_until


def run(pipe: Pipe, request_id: str, arguments: dict[str, Any], **meta: Any) -> dict[str, Any]:
    return pipe.exchange(
        {
            "jsonrpc": "2.0",
            "id": request_id,
            "method": "tools/call",
            "params": {"name": "codex_app_window_run", "arguments": arguments, "_meta": meta},
        }
    )


def lines(folder: Path, state: str = "state") -> list[dict[str, Any]]:
    log = folder / state / "ui-prompts.jsonl"
    return [json.loads(line) for line in log.read_text("utf-8").splitlines()] if log.exists() else []


def stored(folder: Path, task_id: str, state: str = "state") -> dict[str, Any]:
    tasks = json.loads((folder / state / "mcp_tasks.v1.json").read_text("utf-8"))["mcpTasks"]
    (found,) = [task for task in tasks if task["id"] == task_id]
    return dict(found)


def wait_for_status(folder: Path, task_id: str, status: str, state: str) -> bool:
    return wait_until(lambda: stored(folder, task_id, state)["status"] == status)


def in_folder(folder: Any) -> dict[str, Any]:
    """The part of a call's `_meta` by which a host says where it reads."""
    return {"uiApp": {"stateDir": folder if folder is None or isinstance(folder, int) else str(folder)}}


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


@pytest.mark.whole
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


@pytest.mark.whole
def test_a_start_writes_what_a_killed_host_could_not(deployment: Deployment, tmp_path: Path) -> None:
    """Everything was killed between the end of the task and its line: the next server writes it, once."""
    state, flag = tmp_path / "state", tmp_path / "go on"
    with serving(deployment) as pipe:
        pipe.initialize()
        run(pipe, "call", {"prompt": "Done", "flag": str(flag)}, taskId="host-task-3")
        entered = (state / "mcp_tasks.v1.json").read_text()
        flag.touch()
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


# -- the folder that a call names


@pytest.fixture
def hosts(tmp_path: Path) -> Path:
    """A folder outside of the server's own, in which hosts have theirs."""
    folder = tmp_path / "hosts"
    folder.mkdir()
    return folder


def test_over_stdio_the_log_is_in_the_folder_that_the_call_names(
    deployment: Deployment, tmp_path: Path, hosts: Path
) -> None:
    (tmp_path / "link").symlink_to(hosts)
    named = {
        "a": hosts / "one",
        "b": f"{hosts}/two/../two",
        "c": tmp_path / "link" / "three",
        "d": hosts,
        "e": None,
        "f": tmp_path / "state",
    }
    with serving(deployment) as pipe:
        pipe.initialize()
        for task_id, folder in named.items():
            ack = run(pipe, task_id, {"prompt": task_id}, taskId=task_id, chatos=in_folder(folder))
            assert ack["result"]["isError"] is False
        read = {
            "a": "hosts/one",
            "b": "hosts/two",
            "c": "hosts/three",
            "d": "hosts",
            "e": "state",
            "f": "state",
        }
        for task_id, state in read.items():
            assert wait_for_status(tmp_path, task_id, "completed", state)
    for state in set(read.values()):
        wanted = sorted(task_id for task_id, place in read.items() if place == state)
        assert sorted(line["requestId"] for line in lines(tmp_path, state)) == wanted


def test_over_stdio_a_folder_that_cannot_have_the_log_is_refused_and_nothing_is_begun(
    deployment: Deployment, tmp_path: Path, hosts: Path
) -> None:
    (hosts / "mine").mkdir()
    (hosts / "mine" / "ui-prompts.jsonl").symlink_to(tmp_path / "victim")
    (hosts / "a file").touch()
    refused = [hosts / "mine", hosts / "a file", "hosts/one", "", "/\0", f"{hosts}/{'x' * 5000}", 7]
    with serving(deployment) as pipe:
        pipe.initialize()
        for number, folder in enumerate(refused):
            meta = {"taskId": f"bad-{number}", "chatos": in_folder(folder)}
            told = run(pipe, f"call-{number}", {"prompt": "x"}, **meta)["result"]
            assert told["isError"] is True, folder
            assert told["structuredContent"]["error"]["code"] == "state_dir_refused", folder
        tasks = pipe.request("tools/call", name="list_tasks", arguments={})
        assert tasks["structuredContent"]["tasks"] == []
    assert not (tmp_path / "victim").exists()


def test_over_http_a_folder_that_the_operator_does_not_allow_is_refused_and_nothing_is_begun(
    deployment: Deployment, tmp_path: Path, hosts: Path
) -> None:
    deployment.settings["task_id__state_roots"] = json.dumps([str(hosts)])
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (hosts / "out").symlink_to(elsewhere)
    refused = [
        elsewhere,
        f"{hosts}/../elsewhere",
        hosts / "out",
        hosts / "out" / "deeper",
        tmp_path / "hosts-2",
        tmp_path / "state" / "deeper",
    ]
    with serving_http(deployment) as session:
        for number, folder in enumerate(refused):
            meta = {"taskId": f"bad-{number}", "chatos": in_folder(folder)}
            told = session.call("codex_app_window_run", meta, prompt="x")
            assert told["structuredContent"]["error"]["code"] == "state_dir_refused", folder
            assert "task_id.state_roots" in told["content"][0]["text"]
        assert session.call("list_tasks")["structuredContent"]["tasks"] == []
        for task_id, folder in (("own", tmp_path / "state"), ("allowed", hosts / "one")):
            meta = {"taskId": task_id, "chatos": in_folder(folder)}
            assert session.call("codex_app_window_run", meta, prompt="x")["isError"] is False
        assert wait_for_status(tmp_path, "own", "completed", "state")
        assert wait_for_status(tmp_path, "allowed", "completed", "hosts/one")
    assert list(elsewhere.iterdir()) == []


def test_a_supervisor_writes_to_a_folder_that_only_the_accepting_server_allows(
    deployment: Deployment, tmp_path: Path, hosts: Path
) -> None:
    flag = tmp_path / "go on"
    with serving(deployment) as pipe:  # its supervisor has no state_roots
        pipe.initialize()
        run(pipe, "first", {"prompt": "x"}, taskId="first")
        assert wait_for_status(tmp_path, "first", "completed", "state")
    deployment.settings["task_id__state_roots"] = json.dumps([str(hosts)])
    with serving_http(deployment) as session:
        meta = {"taskId": "second", "chatos": in_folder(hosts / "one")}
        session.call("codex_app_window_run", meta, prompt="x", flag=str(flag))
        assert wait_for_status(tmp_path, "second", "running", "hosts/one")
    flag.touch()  # when no server is left
    assert wait_for_status(tmp_path, "second", "completed", "hosts/one")
    assert [line["requestId"] for line in lines(tmp_path, "hosts/one")] == ["second"]


def test_the_folder_is_remembered_when_server_and_supervisor_die(
    deployment: Deployment, tmp_path: Path, hosts: Path
) -> None:
    flag = tmp_path / "go on"
    with serving(deployment) as pipe:
        pipe.initialize()
        for name in ("one", "two"):
            asked = {"prompt": name, "flag": str(flag)}
            run(pipe, name, asked, taskId=name, chatos=in_folder(hosts / name))
            assert wait_for_status(tmp_path, name, "running", f"hosts/{name}")
        pipe.kill()
    supervisor = deployment.supervisor()
    assert supervisor is not None
    supervisor.kill()
    assert ended(supervisor)
    flag.touch()
    with serving(deployment) as pipe:
        pipe.initialize()
        pipe.request("tools/list")
        for name in ("one", "two"):
            assert wait_for_status(tmp_path, name, "completed", f"hosts/{name}")
        # The same call again, by a host that did not get the answer, is the same task and no second line.
        asked = {"prompt": "one", "flag": str(flag)}
        run(pipe, "again", asked, taskId="one", chatos=in_folder(hosts / "one"))
        pipe.request("ping")
    deployment.close()  # whose last deed is to catch up
    for name in ("one", "two"):
        assert [line["requestId"] for line in lines(tmp_path, f"hosts/{name}")] == [name]
    assert lines(tmp_path) == []


def test_the_id_is_under_the_key_that_the_host_names(deployment: Deployment, tmp_path: Path) -> None:
    """`callMeta.asyncTask.taskIdKey`: a host sends its `callMeta` with every call."""
    told = {"tools": ["codex_app_window_run"], "taskIdKey": "requestRef", "resultSource": "ui_prompts"}
    with serving(deployment) as pipe:
        pipe.initialize()
        refused = run(pipe, "call-1", {"prompt": "x"}, asyncTask=told, taskId="not this one")
        assert refused["error"]["code"] == -32602
        empty = run(pipe, "call-2", {"prompt": "x"}, asyncTask=told, requestRef="")
        assert "_meta.requestRef" in empty["error"]["message"]
        ack = run(pipe, "call-3", {"prompt": "x"}, asyncTask=told, requestRef="host-task-4")["result"]
        assert ack["isError"] is False
        assert wait_for_status(tmp_path, "host-task-4", "completed", "state")


def test_where_every_slow_tool_requires_a_task_id_no_task_tools_are_listed(
    deployment: Deployment, tmp_path: Path
) -> None:
    app = tmp_path / "named.py"
    app.write_text(
        "from backburner import Backburner\n"
        "bb = Backburner('named')\n"
        "@bb.tool(requires_task_id=True, asks='anyone')\n"
        "def codex_app_window_run(prompt: str) -> str:\n"
        "    return prompt\n"
    )
    with serving(deployment, app=app) as pipe:
        pipe.initialize()
        listed = [tool["name"] for tool in pipe.request("tools/list")["tools"]]
        assert listed == ["codex_app_window_run"]
        assert run(pipe, "call", {"prompt": "x"}, taskId="host-task-5")["result"]["isError"] is False
        assert wait_for_status(tmp_path, "host-task-5", "completed", "state")


def test_submit_task_does_not_start_a_tool_that_needs_a_task_id(deployment: Deployment) -> None:
    """The id comes from the host and not from the model, so there is no argument for it."""
    with serving(deployment) as pipe:
        pipe.initialize()
        arguments = {"tool_name": "codex_app_window_run", "inputs": {"prompt": "x"}}
        told = pipe.request("tools/call", name="submit_task", arguments=arguments)
        assert told["isError"] is True
        assert told["structuredContent"]["error"]["code"] == "task_id_required"
        assert "codex_app_window_run" in told["content"][0]["text"]
        tasks = pipe.request("tools/call", name="list_tasks", arguments={})
        assert tasks["structuredContent"]["tasks"] == []
