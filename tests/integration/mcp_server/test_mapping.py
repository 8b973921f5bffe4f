"""The table of states against what each protocol calls them."""

from __future__ import annotations

import pytest

from backburner import State, Task, TaskError
from backburner.errors import QueueFull, TaskNotFound
from backburner.mcp.access import unexpired
from backburner.mcp.dialects.tasks_2025 import wire as tasks_2025
from backburner.mcp.dialects.tasks_2026 import wire as tasks_2026
from backburner.mcp.dialects.two_stage import wire as two_stage
from backburner.mcp.errors import mcp_error, task_error
from backburner.service.tasks import TaskStatus
from backburner.tools.estimates import EstimateSource, ExpectedRuntime

GUESS = ExpectedRuntime(60.0, EstimateSource.DEFAULT)

TABLE = {
    "queued": ("working", "working", "queued"),
    "scheduled": ("working", "working", "queued"),
    "running": ("working", "working", "running"),
    "cancel_requested": ("working", "working", "running"),
    "cancelling": ("working", "working", "running"),
    "input_required": ("input_required", "input_required", "running"),
    "succeeded": ("completed", "completed", "complete"),
    "failed": ("failed", "failed", "complete"),
    "timed_out": ("failed", "failed", "complete"),
    "cancelled": ("cancelled", "cancelled", "complete"),
}


def task(state: str, error: TaskError | None = None) -> Task:
    return Task(
        seq=1,
        task_id="tsk_1",
        tool_name="t",
        queue="q",
        state=State(state),
        submitted_at=1_000,
        updated_at=2_000,
        expires_at=61_000,
        error=error,
    )


@pytest.mark.parametrize("state", list(TABLE))
def test_every_state_has_its_word_in_each_protocol(state: str) -> None:
    made = task(state)
    words = (tasks_2026.status_of(made), tasks_2025.status_of(made), two_stage.STATUS[made.state])
    assert words == TABLE[state]


def test_no_state_is_forgotten() -> None:
    assert {*TABLE, "expired"} == {str(state) for state in State}


def test_a_tool_s_own_error_is_a_result_at_2026_and_a_failure_at_2025() -> None:
    failed = task("failed", TaskError("tool_error", "it broke"))
    assert (tasks_2026.status_of(failed), tasks_2025.status_of(failed)) == ("completed", "failed")
    lost = task("failed", TaskError("worker_lost", "the runner died"))
    assert tasks_2026.status_of(lost) == "failed"
    assert task_error(lost) == {
        "code": -32603,
        "message": "the runner died",
        "data": {"type": "worker_lost"},
    }


def test_an_expired_task_is_gone() -> None:
    with pytest.raises(TaskNotFound):
        unexpired(TaskStatus(task("expired"), None, GUESS, None, 50))


def test_times_are_iso_8601_with_milliseconds() -> None:
    shown = tasks_2026.task_shown(TaskStatus(task("queued"), 3, GUESS, None, 50))
    assert shown["createdAt"] == "1970-01-01T00:00:01.000Z"
    assert (shown["ttlMs"], shown["pollIntervalMs"]) == (60_000, 50)
    assert shown["statusMessage"] == "Queued at position 3"


def test_a_full_queue_says_when_to_come_again() -> None:
    error = mcp_error(QueueFull(queue="q", length=3, retry_after_s=7))
    assert (error.code, error.data["retry_after_s"]) == (-32603, 7)
