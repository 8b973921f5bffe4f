"""Names of the task tools, and the parts of their answers that both sides parse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....tools.estimates import EstimateSource, ExpectedRuntime

SUBMIT_TASK = "submit_task"
GET_TASK_STATUS = "get_task_status"
#: In the `_meta` of `get_task_result`, for clients without size limits: the tool's own result.
RESULT_ITSELF = "backburner/result"
WAIT_FOR_TASK = "wait_for_task"
GET_TASK_RESULT = "get_task_result"
TAIL_TASK_LOGS = "tail_task_logs"
LIST_TASK_ARTIFACTS = "list_task_artifacts"
LIST_TASKS = "list_tasks"
CANCEL_TASK = "cancel_task"
ANSWER_TASK = "answer_task"
#: The tools with which a model gets a result, for hosts that put every tool into every request.
FEW = (WAIT_FOR_TASK, GET_TASK_RESULT, CANCEL_TASK, ANSWER_TASK)


def estimated(runtime: ExpectedRuntime) -> dict[str, Any]:
    """Return the expected run time and its source."""
    return {"estimated_runtime_seconds": runtime.seconds, "estimate_source": str(runtime.source)}


def estimate_in(status: Mapping[str, Any]) -> ExpectedRuntime | None:
    """Return the expected run time in a status; None if it is missing or malformed."""
    try:
        return ExpectedRuntime(
            float(status["estimated_runtime_seconds"]), EstimateSource(status["estimate_source"])
        )
    except (KeyError, TypeError, ValueError):
        return None
