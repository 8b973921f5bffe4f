"""Who is answered with the handle at once, and who is told what becomes of the job."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deployment import Deployment
from tests.integration.source_documents.http_session import serving_http
from tests.integration.source_documents.pipe import Pipe, serving

DECLARED: dict[str, Any] = {"experimental": {"tool_result": {}}}


@pytest.fixture
def pipe(deployment: Deployment) -> Iterator[Pipe]:
    with serving(deployment) as pipe:
        yield pipe


def told_of(pipe: Pipe) -> set[str]:
    """The jobs of which the client has heard."""
    return {heard["params"].get("job_id") for heard in pipe.heard if "method" in heard}


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize(("capabilities", "meta"), [({}, {"async": True}), (DECLARED, {}), (DECLARED, None)])
def test_a_two_stage_client_has_its_handle_at_once_whatever_the_estimate(
    pipe: Pipe, tmp_path: Path, capabilities: dict[str, Any], meta: dict[str, Any] | None
) -> None:
    """The call would fit the client's patience, and the tool does not end before the answer is there."""
    pipe.initialize(**capabilities)
    inputs = {"name": "wksm_vault_index", "arguments": {"path": str(tmp_path)}}
    handle = pipe.request("tools/call", **inputs, **({} if meta is None else {"_meta": meta}))
    assert handle["data"]["estimated_runtime_seconds"] == 20.0
    (tmp_path / "indexed").touch()
    told = pipe.notified("notifications/tool_result", job_id=handle["data"]["job_id"])["params"]
    assert told["result"]["data"] == {"notes": 3}


def test_a_call_may_say_that_it_is_to_be_held(pipe: Pipe, tmp_path: Path) -> None:
    pipe.initialize(**DECLARED)
    (tmp_path / "indexed").touch()
    inputs = {"name": "wksm_vault_index", "arguments": {"path": str(tmp_path)}}
    held = pipe.request("tools/call", **inputs, _meta={"async": False})
    assert held["structuredContent"] == {"notes": 3}


def test_a_tool_whose_author_says_hold_is_held_for_everybody(pipe: Pipe) -> None:
    pipe.initialize(**DECLARED)
    inputs = {"name": "analyze_document", "arguments": {"format": "pdf"}}
    held = pipe.request("tools/call", **inputs, _meta={"async": True})
    assert held["content"] == [{"type": "text", "text": "Result data"}]


def test_one_setting_answers_every_call_of_an_app_with_the_handle(
    deployment: Deployment, tmp_path: Path
) -> None:
    """The call would fit the client's patience. A tool whose author says hold is held all the same."""
    deployment.variables = {"BACKBURNER_MCP__ANSWER": "handle"}
    with serving(deployment) as pipe:
        pipe.initialize()
        inputs = {"name": "wksm_vault_index", "arguments": {"path": str(tmp_path)}}
        job_id = pipe.request("tools/call", **inputs)["data"]["job_id"]
        (tmp_path / "indexed").touch()
        told = pipe.notified("notifications/tool_result", job_id=job_id)["params"]
        assert told["result"]["data"] == {"notes": 3}
        held = pipe.request("tools/call", name="analyze_document", arguments={"format": "pdf"})
        assert held["content"] == [{"type": "text", "text": "Result data"}]


def test_where_the_author_leaves_it_open_only_those_are_told_who_can_take_it(
    deployment: Deployment, tmp_path: Path
) -> None:
    """This client waits for 5 s, so a tool that should take 20 is answered with the handle."""
    deployment.settings = {"mcp__client_patience": '{"hasty": "4s"}'}
    with serving(deployment) as pipe:
        pipe.initialize("hasty")
        (tmp_path / "indexed").touch()
        inputs = {"name": "wksm_vault_index", "arguments": {"path": str(tmp_path)}}
        plain = pipe.request("tools/call", **inputs)["data"]["job_id"]
        pipe.request("tools/call", name="wait_for_task", arguments={"task_id": plain})
        told = pipe.request("tools/call", **inputs, _meta={"async": True})["data"]["job_id"]
        pipe.notified("notifications/tool_result", job_id=told)
        assert told_of(pipe) == {told}


def test_a_job_that_asks_is_answered_by_the_client_that_can_be_asked(pipe: Pipe) -> None:
    pipe.initialize(elicitation={})
    job_id = pipe.request("tools/call", name="rename_vault", _meta={"async": True})["data"]["job_id"]
    asked = pipe.until(lambda heard: heard.get("method") == "elicitation/create")
    assert asked["params"]["message"] == "Which name?"
    answer = {"action": "accept", "content": {"name": "attic"}}
    pipe.send({"jsonrpc": "2.0", "id": asked["id"], "result": answer})
    told = pipe.notified("notifications/tool_result", job_id=job_id)["params"]
    assert told["result"]["data"] == {"result": "attic"}


# -- over HTTP -------------------------------------------------------------------------------------


def test_an_open_event_stream_is_told_of_a_job_without_a_word_of_the_client(
    deployment: Deployment, tmp_path: Path
) -> None:
    with serving_http(deployment) as session, session.listening() as heard:
        handle = session.call("wksm_monitor_sync", path=str(tmp_path), recursive=True)
        job_id = handle["data"]["job_id"]
        first = heard.get(timeout=30)
        assert first["method"] == "notifications/progress"
        assert first["params"]["job_id"] == job_id
        assert first["params"]["message"] == "Starting operation..."
        for done in (150, 300):
            (tmp_path / str(done)).touch()
        while (last := heard.get(timeout=30))["method"] == "notifications/progress":
            assert last["params"]["job_id"] == job_id
    assert last["params"]["job_id"] == job_id
    assert last["params"]["result"]["data"]["files_processed"] == 500
