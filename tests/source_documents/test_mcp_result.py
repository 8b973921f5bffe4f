"""The shapes of `async-tools.md` and `two-stage-return.md`."""

from backburner.mcp.dialects.two_stage.mcp_result import MCPResult


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
