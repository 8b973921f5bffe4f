"""What an endpoint is told: one JSON object for each end of a task, in the form of Standard Webhooks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import json_text
from ..lifecycle import State
from ..task import TaskError
from ..times import iso

#: A longer text of an error is cut: the message is short, and the task has the whole.
_LONGEST_ERROR = 1000


@dataclass(frozen=True, slots=True)
class End:
    """How a task ended, as far as an endpoint is told. Times are milliseconds since the epoch."""

    task_id: str
    tool_name: str
    owner: str
    state: State
    attempt: int
    submitted_at: int
    started_at: int | None
    ended_at: int
    error: TaskError | None = None
    result_json: str | None = None

    def message(self, result_bytes: int) -> str:
        """The body of the message, with the result if that is not longer than so many bytes."""
        data: dict[str, Any] = {
            "task_id": self.task_id,
            "tool": self.tool_name,
            "owner": self.owner,
            "state": self.state,
            "attempt": self.attempt,
            "submitted_at": iso(self.submitted_at),
            "started_at": iso(self.started_at),
            "ended_at": iso(self.ended_at),
        }
        if self.error is not None:
            data["error"] = {"type": self.error.type, "message": self.error.message[:_LONGEST_ERROR]}
        if self.result_json is not None:
            data["result_uri"] = f"task://{self.task_id}/result"
            if len(self.result_json.encode()) <= result_bytes:
                data["result"] = json_text.decode(self.result_json)
        return json_text.encode({"type": f"task.{self.state}", "timestamp": iso(self.ended_at), "data": data})
