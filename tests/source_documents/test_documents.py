"""Each JSON example of the source documents, over a real pipe, in both framings."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deployment import Deployment
from tests.source_documents.pipe import Pipe, serving


@pytest.fixture(params=["newline", "lsp"])
def pipe(deployment: Deployment, request: pytest.FixtureRequest) -> Iterator[Pipe]:
    with serving(deployment, request.param) as pipe:
        pipe.initialize(experimental={"tool_result": {}})
        yield pipe


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


def test_the_protocol_flow_of_a_two_stage_call(pipe: Pipe, tmp_path: Path) -> None:
    response = pipe.exchange(call(tmp_path))
    result = response["result"]
    assert result["success"] is True
    assert result["data"]["estimated_runtime_seconds"] == 45.0
    assert result["data"]["status"] == "queued"
    assert result["data"]["poll_endpoint"] == "tools/poll_result"
    assert result["messages"][0]["type"] == "info"
    assert "45 s" in result["messages"][0]["text"]
    assert result["structuredContent"] == {key: result[key] for key in ("success", "data", "messages")}
    job_id = result["data"]["job_id"]

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


def test_an_error_in_the_final_result(pipe: Pipe, tmp_path: Path) -> None:
    for done in (150, 300):
        (tmp_path / str(done)).touch()
    response = pipe.exchange(call(tmp_path, recursive=False))
    job_id = response["result"]["data"]["job_id"]
    final = pipe.notified("notifications/tool_result", job_id=job_id)["params"]
    assert final["result"]["success"] is False
    assert final["result"]["data"] == {}
    (message,) = final["result"]["messages"]
    assert message["type"] == "error"
    assert message["text"] == "Failed to sync: Permission denied"
    assert "PermissionError" in message["details"]


def test_an_unknown_job_is_not_found(pipe: Pipe) -> None:
    for job_id in ("abc-123", "", "tsk_" + "0" * 36):
        polled = pipe.request("tools/poll_result", job_id=job_id)
        assert polled["success"] is False
        assert polled["messages"] == [{"type": "error", "text": f"Job not found: {job_id}"}]


def test_slow_tools_are_listed_as_async(pipe: Pipe) -> None:
    tools = {tool["name"]: tool for tool in pipe.request("tools/list")["tools"]}
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


def test_every_tool_result_has_its_token_and_its_duration(pipe: Pipe) -> None:
    for name, arguments in (("add", {"a": 1}), ("analyze_document", {"format": "pdf"}), ("list_tasks", {})):
        response = pipe.exchange(
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


def test_a_held_call_tells_its_progress_by_the_clients_token(pipe: Pipe, tmp_path: Path) -> None:
    flag = tmp_path / "go on"
    pipe.send(
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
    told = pipe.notified("notifications/progress", progressToken="1706302400000-12345")["params"]
    assert told["percentage"] == 50.0
    assert told["message"] == "Processing features..."
    assert told["context"] == {"current_stage": "extraction", "models_processed": 3}
    assert (told["progress"], told["total"]) == (50.0, 100)
    flag.touch()
    result = pipe.until(lambda message: message.get("id") == "req-123")["result"]
    assert result["content"] == [{"type": "text", "text": "Result data"}]
    assert result["_meta"]["progressToken"] == "1706302400000-12345"


def test_a_completion_of_the_document(pipe: Pipe) -> None:
    response = pipe.exchange(
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
    pipe.request("tools/call", name="analyze_document", arguments={"format": "pdf", "title": "Moby Dick"})
    assert values(**titled, context={"author": "alice"})[0] == "Moby Dick"

    job = pipe.request("tools/call", **call(tmp_path)["params"])["data"]["job_id"]
    template = {"type": "ref/resource", "uri": "task://{task_id}/result"}
    assert job in values(ref=template, argument={"name": "task_id", "value": "tsk_"})
    assert values(ref={"type": "ref/prompt", "name": "none"}, argument={"name": "x", "value": ""}) == []


def test_a_completion_that_makes_no_sense_is_refused(pipe: Pipe) -> None:
    for params in (
        {"name": "no_such_tool", "partial_argument": ""},
        {"name": 5, "partial_argument": ""},
        {"name": "add", "partial_argument": 5},
        {"name": "add", "arguments": [1]},
        {"ref": {"type": "ref/resource", "uri": "task://x"}, "argument": 3},
    ):
        request = {"jsonrpc": "2.0", "id": str(params), "method": "completion/complete", "params": params}
        assert pipe.exchange(request)["error"]["code"] == -32602
    assert pipe.request("ping") == {}


def test_a_schema_that_is_not_valid_is_an_error_and_no_empty_list(pipe: Pipe) -> None:
    def complete(argument: str) -> dict[str, Any]:
        params = {"name": "broken_form", "partial_argument": {"name": argument, "value": ""}}
        return pipe.exchange(
            {"jsonrpc": "2.0", "id": argument, "method": "completion/complete", "params": params}
        )

    error = complete("colour")["error"]
    assert (error["code"], error["data"]) == (-32602, {"code": "completion_failed"})
    assert "broken_form" in error["message"]
    assert "enum: 'red'" in error["message"]
    assert complete("size")["result"]["completion"]["values"] == ["small", "large"]
