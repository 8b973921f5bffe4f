"""The shapes of `async-tools.md` and `two-stage-return.md`."""

from dataclasses import asdict
from typing import Any

import pytest

from backburner import MCPResult


def test_the_answer_of_stage_one() -> None:
    result = MCPResult(data={"status": "queued"}, job_id="abc-123", estimated_runtime_seconds=45.0)
    assert result.add_info("Operation queued. Estimated runtime: 45s").to_dict() == {
        "success": True,
        "data": {"job_id": "abc-123", "estimated_runtime_seconds": 45.0, "status": "queued"},
        "messages": [{"type": "info", "text": "Operation queued. Estimated runtime: 45s"}],
    }


def test_the_result_of_stage_three() -> None:
    result = MCPResult(data={"files_processed": 500}).add_success("Sync completed successfully")
    result.add_warning("10 files were skipped", details="no permission")
    assert result.to_dict() == {
        "success": True,
        "data": {"files_processed": 500},
        "messages": [
            {"type": "success", "text": "Sync completed successfully"},
            {"type": "warning", "text": "10 files were skipped", "details": "no permission"},
        ],
    }


def test_an_error_result() -> None:
    expected = {
        "success": False,
        "data": {},
        "messages": [
            {
                "type": "error",
                "text": "Failed to sync: Permission denied",
                "details": "Full error traceback...",
            }
        ],
    }
    text, details = "Failed to sync: Permission denied", "Full error traceback..."
    assert MCPResult.error_result(text, details).to_dict() == expected
    assert MCPResult().add_error(text, details).to_dict() == expected


def test_results_share_nothing() -> None:
    first, second = MCPResult(), MCPResult()
    first.add_info("only here")
    first.data["x"] = 1
    assert second.to_dict() == {"success": True, "data": {}, "messages": []}


@pytest.mark.parametrize(
    "value",
    [
        {"success": False},
        {"success": False, "data": {}},
        {"success": False, "data": {}, "messages": [], "more": 1},
        {"success": 0, "data": {}, "messages": []},
        {"success": "false", "data": {}, "messages": []},
        {"success": False, "data": [], "messages": []},
        {"success": False, "data": None, "messages": []},
        {"success": False, "data": {}, "messages": {}},
        {"success": False, "data": {}, "messages": ["it broke"]},
        {"success": False, "data": {}, "messages": [{"type": "fatal", "text": "it broke"}]},
        {"success": False, "data": {}, "messages": [{"type": "error"}]},
        {"success": False, "data": {}, "messages": [{"type": "error", "text": "x", "level": 1}]},
        {"success": False, "data": {}, "messages": [], "job_id": 7},
        [False, {}, []],
        "failed",
        None,
    ],
)
def test_an_ordinary_value_is_not_taken_for_one(value: Any) -> None:
    assert MCPResult.of(value) is None


def test_a_dict_of_its_form_is_one_also_by_the_records_own_fields() -> None:
    result = MCPResult(data={"n": 1}, job_id="abc").add_warning("careful").add_error("no", "why")
    for value in (result, result.to_dict(), asdict(result)):
        found = MCPResult.of(value)
        assert found is not None
        assert found.to_dict() == result.to_dict()
        assert (found.error_text, found.error_details) == ("no", "why")
    assert MCPResult.of(MCPResult(False).to_dict()) == MCPResult(False)


def test_without_an_error_among_the_messages_all_of_them_say_what_went_wrong() -> None:
    assert MCPResult(False).add_info("step 1").add_warning("step 2 did nothing").error_text == (
        "step 1\nstep 2 did nothing"
    )


@pytest.mark.parametrize("crooked", [MCPResult(messages=["x"]), MCPResult(data=[])])  # type: ignore[list-item, arg-type]
def test_one_that_is_not_in_form_says_so(crooked: MCPResult) -> None:
    with pytest.raises(TypeError, match="in form"):
        MCPResult.of(crooked)
