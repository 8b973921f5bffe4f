"""The task tools: their names, and what both sides know of their answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....estimate import EstimateSource, ExpectedRuntime

SUBMIT_TASK = "submit_task"
GET_TASK_STATUS = "get_task_status"
#: In the `_meta` of `get_task_result`, for clients that take a result of any size: the tool's own.
RESULT_ITSELF = "backburner/result"
WAIT_FOR_TASK = "wait_for_task"
GET_TASK_RESULT = "get_task_result"
TAIL_TASK_LOGS = "tail_task_logs"
LIST_TASK_ARTIFACTS = "list_task_artifacts"
LIST_TASKS = "list_tasks"
CANCEL_TASK = "cancel_task"
ANSWER_TASK = "answer_task"


def estimated(runtime: ExpectedRuntime) -> dict[str, Any]:
    """How long a task should run, and who says so."""
    return {"estimated_runtime_seconds": runtime.seconds, "estimate_source": str(runtime.source)}


def estimate_in(status: Mapping[str, Any]) -> ExpectedRuntime | None:
    """What `estimated` made part of a status; None from a server that tells none, or in words of its own."""
    try:
        return ExpectedRuntime(
            float(status["estimated_runtime_seconds"]), EstimateSource(status["estimate_source"])
        )
    except (KeyError, TypeError, ValueError):
        return None
