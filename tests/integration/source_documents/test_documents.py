"""Clients as the source documents write them: their own JSON over a real pipe, in both framings.

They declare nothing and know no tasks: what they send and what they must get is what the documents show.
"""

import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import services
from tests.deployment import Deployment
from tests.integration.source_documents.pipe import Pipe, serving
from tests.services import wait_until


@pytest.fixture(params=["newline", "lsp"])
def pipe(deployment: Deployment, request: pytest.FixtureRequest) -> Iterator[Pipe]:
    with serving(deployment, request.param) as pipe:
        pipe.initialize()
        yield pipe


@pytest.fixture(scope="module", params=["newline", "lsp"])
def lasting_pipe(
    tmp_path_factory: pytest.TempPathFactory, run_directory: str, request: pytest.FixtureRequest
) -> Iterator[Pipe]:
    """One of a server for more than one test, whose supervisor is up."""
    folder, settings = tmp_path_factory.mktemp("documents"), {"supervisor__idle_exit_s": "0"}
    with Deployment(folder, settings=settings) as deployment, serving(deployment, request.param) as pipe:
        pipe.initialize()
        pipe.request("tools/list")
        assert wait_until(deployment.supervisor)
        supervisor = deployment.supervisor()
        assert supervisor is not None
        pids = {pipe.process.pid, supervisor.pid}
        services.running |= pids
        yield pipe
    services.running -= pids


@pytest.fixture
def shared(lasting_pipe: Pipe) -> Pipe:
    """For what concerns neither the history of the store nor what others have heard."""
    lasting_pipe.heard.clear()
    return lasting_pipe


def call(path: Path, *, recursive: bool = True) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {
            "name": "wksm_monitor_sync",
            "arguments": {"path": str(path), "recursive": recursive},
        },
    }


def progress_of(pipe: Pipe, job_id: str) -> list[dict[str, Any]]:
    """What a client has heard of the progress of its job, which it knows by the id alone."""
    told = [message["params"] for message in pipe.heard if message.get("method") == "notifications/progress"]
    return [params for params in told if params["job_id"] == job_id]


def test_the_protocol_flow_of_a_two_stage_call(pipe: Pipe, tmp_path: Path) -> None:
    response = pipe.exchange(call(tmp_path))
    result = response["result"]
    assert result["success"] is True
    assert isinstance(result["data"]["estimated_runtime_seconds"], float)
    assert result["data"]["estimated_runtime_seconds"] == 45.0
    assert result["data"]["status"] == "queued"
    assert result["data"]["poll_endpoint"] == "tools/poll_result"
    assert result["messages"][0] == {"type": "info", "text": "Operation queued. Estimated runtime: 45s"}
    job_id = result["data"]["job_id"]
    assert progress_of(pipe, job_id) == []  # the answer comes before all news

    for done, progress in ((150, 0.3), (300, 0.6)):
        message = f"Processing {done} of 500 files..."
        told = pipe.notified("notifications/progress", job_id=job_id, message=message)
        assert "id" not in told
        assert told["params"]["progress"] == pytest.approx(progress)
        assert told["params"]["progressToken"] == result["_meta"]["progressToken"]
        assert told["params"]["timestamp"].endswith("Z")
        polled = pipe.request("tools/poll_result", job_id=job_id)
        assert polled["success"] is True
        assert polled["data"]["status"] == "running"
        assert polled["data"]["progress"] == pytest.approx(progress)
        (tmp_path / str(done)).touch()

    first, *_ = progress_of(pipe, job_id)
    assert (first["progress"], first["message"]) == (0.0, "Starting operation...")
    final = pipe.notified("notifications/tool_result", job_id=job_id)
    assert "id" not in final
    assert final["params"]["timestamp"].endswith("Z")
    assert final["params"]["result"] == {
        "success": True,
        "data": {
            "files_processed": 500,
            "files_skipped": 10,
            "files_updated": 490,
            "duration_seconds": 42.3,
        },
        "messages": [{"type": "success", "text": "Sync completed successfully"}],
    }
    for _ in range(2):  # reading a result does not delete it
        polled = pipe.request("tools/poll_result", job_id=job_id)
        assert polled["data"] == {"job_id": job_id, "status": "complete", "result": final["params"]["result"]}


def test_an_error_in_the_final_result(shared: Pipe, tmp_path: Path) -> None:
    for done in (150, 300):
        (tmp_path / str(done)).touch()
    response = shared.exchange(call(tmp_path, recursive=False))
    job_id = response["result"]["data"]["job_id"]
    final = shared.notified("notifications/tool_result", job_id=job_id)["params"]
    assert final["result"]["success"] is False
    assert final["result"]["data"] == {}
    (message,) = final["result"]["messages"]
    assert message["type"] == "error"
    assert message["text"] == "Failed to sync: Permission denied"
    assert "PermissionError" in message["details"]


def test_the_words_of_the_answer_are_the_documents_first_and_then_say_what_to_do(pipe: Pipe) -> None:
    """The same text stands in `content`, for clients of MCP that know no more than that."""
    shown_as = {45.0: "45s", 0.7: "1s", 61.256: "61.26s", 1_500_000: "1500000s", 0: "1s"}
    for seconds, shown in shown_as.items():
        handle = pipe.request("tools/call", name="wksm_transform_batch", arguments={"seconds": seconds})
        first, then = (message["text"] for message in handle["messages"])
        assert first == f"Operation queued. Estimated runtime: {shown}"
        assert handle["data"]["job_id"] in then
        assert "call wait_for_task" in then
        assert handle["content"] == [{"type": "text", "text": f"{first}\n{then}"}]
        assert handle["structuredContent"] == {key: handle[key] for key in ("success", "data", "messages")}
        assert handle["isError"] is False


@pytest.mark.parametrize(
    ("tool", "arguments", "text"),
    [
        ("wksm_transform_batch", {"seconds": 1}, "wksm_transform_batch completed successfully"),
        ("wksm_vault_index", {"path": "{}"}, "Index completed successfully"),
    ],
)
def test_a_result_says_that_it_went_well_by_the_title_of_its_tool(
    shared: Pipe, tmp_path: Path, tool: str, arguments: dict[str, Any], text: str
) -> None:
    (tmp_path / "indexed").touch()
    inputs = {key: str(tmp_path) if value == "{}" else value for key, value in arguments.items()}
    handle = shared.request("tools/call", name=tool, arguments=inputs, _meta={"async": True})
    told = shared.notified("notifications/tool_result", job_id=handle["data"]["job_id"])["params"]
    assert told["result"]["messages"] == [{"type": "success", "text": text}]
    listed = {entry["name"]: entry.get("title") for entry in shared.request("tools/list")["tools"]}
    assert text.startswith(listed[tool] or tool)


def test_a_client_that_polls(shared: Pipe, tmp_path: Path) -> None:
    """Option 2: no notification is looked at, and the first answer says whom to ask."""
    handle = shared.exchange(call(tmp_path))["result"]["data"]
    asked = {"method": handle["poll_endpoint"], "job_id": handle["job_id"]}
    while (polled := shared.request(**asked))["data"]["status"] != "complete":
        assert polled["success"] is True
        assert polled["data"]["status"] in ("queued", "running")
        assert 0.0 <= polled["data"]["progress"] <= 1.0
        for done in (150, 300):
            (tmp_path / str(done)).touch()
    assert polled["data"]["job_id"] == handle["job_id"]
    assert polled["data"]["result"]["data"]["files_processed"] == 500


def test_an_unknown_job_is_not_found(shared: Pipe) -> None:
    for job_id in ("abc-123", "", "tsk_" + "0" * 36):
        polled = shared.request("tools/poll_result", job_id=job_id)
        assert polled["success"] is False
        assert polled["messages"] == [{"type": "error", "text": f"Job not found: {job_id}"}]


def test_slow_tools_are_listed_as_async(shared: Pipe) -> None:
    tools = {tool["name"]: tool for tool in shared.request("tools/list")["tools"]}
    slow = tools["wksm_monitor_sync"]
    assert slow["description"] == "Sync files to monitor database"
    assert slow["async"] is True
    assert slow["_meta"]["async"] is True
    assert slow["inputSchema"]["type"] == "object"
    assert slow["inputSchema"]["properties"]["path"]["type"] == "string"
    assert slow["inputSchema"]["properties"]["recursive"]["type"] == "boolean"
    assert slow["inputSchema"]["required"] == ["path"]
    assert "async" not in tools["add"]
    assert "async" not in tools["analyze_document"]


def test_every_tool_result_has_its_token_and_its_duration(shared: Pipe) -> None:
    for name, arguments in (("add", {"a": 1}), ("analyze_document", {"format": "pdf"}), ("list_tasks", {})):
        response = shared.exchange(
            {
                "jsonrpc": "2.0",
                "id": f"req-{name}",
                "method": "tools/call",
                "params": {"name": name, "arguments": arguments},
            }
        )
        assert response["id"] == f"req-{name}"
        meta = response["result"]["_meta"]
        time_ms, number = meta["progressToken"].split("-")
        assert time_ms.isdecimal()
        assert number.isdecimal()
        assert isinstance(meta["duration"], int)
        assert response["result"]["content"][0]["type"] == "text"
    assert response["result"]["isError"] is False


def test_a_held_call_tells_its_progress_by_the_clients_token(shared: Pipe, tmp_path: Path) -> None:
    flag = tmp_path / "go on"
    shared.send(
        {
            "jsonrpc": "2.0",
            "id": "req-123",
            "method": "tools/call",
            "params": {
                "name": "analyze_document",
                "arguments": {"format": "pdf", "flag": str(flag)},
                "_meta": {"progressToken": "1706302400000-12345"},
            },
        }
    )
    token, message = "1706302400000-12345", "Processing features..."
    told = shared.notified("notifications/progress", progressToken=token, message=message)["params"]
    assert told["percentage"] == 50.0
    assert told["context"] == {"current_stage": "extraction", "models_processed": 3}
    assert (told["progress"], told["total"]) == (0.5, 1)
    flag.touch()
    result = shared.until(lambda message: message.get("id") == "req-123")["result"]
    assert result["content"] == [{"type": "text", "text": "Result data"}]
    assert result["_meta"]["progressToken"] == "1706302400000-12345"


def test_a_completion_of_the_document(shared: Pipe) -> None:
    response = shared.exchange(
        {
            "jsonrpc": "2.0",
            "id": "req-456",
            "method": "completion/complete",
            "params": {
                "name": "analyze_document",
                "partial_argument": "pdf",
                "arguments": {"format": "pdf"},
                "context": {"previous_file": "document.pdf"},
            },
        }
    )
    assert response["result"]["completion"] == {
        "values": ["pdf", "docx", "txt"],
        "total": 3,
        "hasMore": False,
    }


def test_completions_of_other_kinds(pipe: Pipe, tmp_path: Path) -> None:
    def values(**params: Any) -> list[str]:
        completion = pipe.request("completion/complete", **params)["completion"]
        assert completion["total"] == len(completion["values"])
        found: list[str] = completion["values"]
        return found

    assert values(name="analyze_document", partial_argument="") == ["format", "title", "flag"]
    assert values(name="add", partial_argument="") == ["a", "b"]
    assert values(name="add", partial_argument={"name": "b", "value": ""}) == ["1"]
    titled = {"name": "analyze_document", "partial_argument": {"name": "title", "value": ""}}
    context = {"author": "$.by"}
    assert values(**titled, arguments={"by": "alice"}, context=context) == ["alice", ""]
    assert values(**titled, context=context) == [""]
    pipe.request("tools/call", name="analyze_document", arguments={"format": "pdf", "title": "Moby Dick"})
    assert values(**titled, context={"author": "alice"})[0] == "Moby Dick"

    job = pipe.request("tools/call", **call(tmp_path)["params"])["data"]["job_id"]
    template = {"type": "ref/resource", "uri": "task://{task_id}/result"}
    assert job in values(ref=template, argument={"name": "task_id", "value": "tsk_"})
    assert values(ref={"type": "ref/prompt", "name": "none"}, argument={"name": "x", "value": ""}) == []


def test_a_completion_that_makes_no_sense_is_refused(shared: Pipe) -> None:
    for params in (
        {"name": "no_such_tool", "partial_argument": ""},
        {"name": 5, "partial_argument": ""},
        {"name": "add", "partial_argument": 5},
        {"name": "add", "arguments": [1]},
        {"ref": {"type": "ref/resource", "uri": "task://x"}, "argument": 3},
    ):
        request = {"jsonrpc": "2.0", "id": str(params), "method": "completion/complete", "params": params}
        assert shared.exchange(request)["error"]["code"] == -32602
    assert shared.request("ping") == {}


def test_a_host_that_names_its_tasks_itself_and_polls_the_log(pipe: Pipe, tmp_path: Path) -> None:
    """`task-id-contract.md`, runtime flow: an id of its own, an acknowledgement, and the entry in the log."""
    task_id, state_dir = str(uuid.uuid4()), tmp_path / "state"
    meta = {
        "taskId": task_id,
        "projectRoot": str(tmp_path),
        "chatos": {"uiApp": {"stateDir": str(state_dir)}},
    }
    inputs = {"name": "codex_app_window_run", "arguments": {"prompt": "Summarise"}}
    ack = pipe.exchange(
        {"jsonrpc": "2.0", "id": "call", "method": "tools/call", "params": {**inputs, "_meta": meta}}
    )
    assert ack["result"]["content"][0]["type"] == "text"

    def outputs() -> list[str]:
        log = state_dir / "ui-prompts.jsonl"
        entries = map(json.loads, log.read_text("utf-8").splitlines()) if log.exists() else ()
        return [
            entry["prompt"]["markdown"]
            for entry in entries
            if (entry["type"], entry["action"]) == ("ui_prompt", "request")
            and entry["requestId"] in (task_id, f"mcp-task:{task_id}")
            and entry["prompt"]["kind"] == "result"
        ]

    assert wait_until(outputs)
    assert outputs() == ["## Done\n\nSummarise 交互待办"]


def test_the_sync_of_the_files_pack_has_the_documents_words(deployment: Deployment, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    deployment.variables = {"XDG_STATE_HOME": str(tmp_path / "home")}
    with serving(deployment, app="backburner.packs.files") as pipe:
        pipe.initialize()
        handle = pipe.exchange(call(tmp_path / "tree"))["result"]
        assert (handle["success"], handle["data"]["status"]) == (True, "queued")
        assert re.fullmatch(r"Operation queued\. Estimated runtime: [\d.]+s", handle["messages"][0]["text"])
        told = pipe.notified("notifications/tool_result", job_id=handle["data"]["job_id"])["params"]
        assert told["result"]["messages"] == [{"type": "success", "text": "Sync completed successfully"}]


def test_a_schema_that_is_not_valid_is_an_error_and_no_empty_list(shared: Pipe) -> None:
    def complete(argument: str) -> dict[str, Any]:
        params = {"name": "broken_form", "partial_argument": {"name": argument, "value": ""}}
        return shared.exchange(
            {"jsonrpc": "2.0", "id": argument, "method": "completion/complete", "params": params}
        )

    error = complete("colour")["error"]
    assert (error["code"], error["data"]) == (-32602, {"code": "completion_failed"})
    assert "broken_form" in error["message"]
    assert "enum: 'red'" in error["message"]
    assert complete("size")["result"]["completion"]["values"] == ["small", "large"]
