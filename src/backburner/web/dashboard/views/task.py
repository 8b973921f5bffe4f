"""The page of one task: how it goes, what happened, its log, what went in, and what came out."""

from __future__ import annotations

import math
from typing import Any

from ....lifecycle import TERMINAL, State
from ....mcp.links import media_type_of
from ....short_names import owner_name
from ..pages import Asked, Desk, Elsewhere, Page
from ..rendering import seconds_between
from ..strip import happenings, strip_of
from ..tree import tree_of

_MOST_FILES, _MOST_CHILDREN = 100, 10
#: As the card does it: in an `<img>` none of these can do anything.
_PICTURES = frozenset(f"image/{name}" for name in ("png", "jpeg", "gif", "webp", "avif", "bmp", "svg+xml"))
_LARGEST_PICTURE, _MOST_PICTURES = 5_000_000, 6
_CAN_BE_RETRIED = frozenset({State.FAILED, State.TIMED_OUT, State.CANCELLED})
_STATES = {
    State.INPUT_REQUIRED: "needs an answer",
    State.CANCEL_REQUESTED: "stopping",
    State.CANCELLING: "stopping",
}


class OneTask:
    def __init__(self, desk: Desk) -> None:
        self._desk, self._reading = desk, desk.reading

    @property
    def pages(self) -> list[Page]:
        at = "/dashboard/tasks/{task_id}"
        return [
            Page(at, "task.html", "tasks", self.task),
            Page(f"{at}/artifacts/{{artifact_id}}", "task.html", "tasks", self.artifact),
        ]

    def task(self, asked: Asked) -> dict[str, Any]:
        """Also by the beginning of its id."""
        access, reading = asked.access, self._reading
        task_id = reading.whole_id(access, asked.path["task_id"])
        if task_id != asked.path["task_id"]:
            raise Elsewhere(f"/dashboard/tasks/{task_id}")
        task = reading.task(access, task_id)
        state = State(task["state"])
        now_ms = self._desk.app.store.now_ms()
        return {
            "task": task,
            "state_words": _STATES.get(state, str(state).replace("_", " ")),
            "owner": owner_name(task["owner"]),
            "finished": state in TERMINAL,
            "can_retry": state in _CAN_BE_RETRIED,
            "known_tool": task["tool_name"] in self._desk.app.tools,
            "reasons": self._reasons(task, state, now_ms),
            "progress": _progress(task, state),
            "times": _times(task),
            "strip": strip_of(task, now_ms),
            "happenings": happenings(task),
            "inputs": None if task["inputs"] is None else tree_of(task["inputs"]),
            "result": self._result(asked, task_id, state),
            "files": self._files(asked, task_id),
            "children": self._children(asked, task_id),
            "last_line": reading.last_line(access, task_id),
        }

    def artifact(self, asked: Asked) -> dict[str, Any]:
        """A file, at an address that stays the same; the link that it leads to works for a while."""
        own = "preview" in asked.query
        raise Elsewhere(
            self._reading.artifact_link(
                asked.access, asked.path["task_id"], asked.path["artifact_id"], own=own
            )
        )

    def _reasons(self, task: dict[str, Any], state: State, now_ms: int) -> list[str]:
        """Why it waits."""
        if state is not State.QUEUED:
            return []
        reasons = []
        queue = next((one for one in self._reading.queues()["queues"] if one["queue"] == task["queue"]), None)
        if queue is not None and queue["paused_at"]:
            reasons.append(
                f"The queue {task['queue']} is paused: none of its tasks begins until it is resumed."
            )
        elif task["waits_for"]:
            reasons.append(f"It waits: {task['waits_for']}.")
        if task["position"]:
            reasons.append(f"It is number {task['position']:,} in the queue {task['queue']}.")
        return reasons

    def _result(self, asked: Asked, task_id: str, state: State) -> dict[str, Any] | None:
        if state is not State.SUCCEEDED:
            return None
        kept = self._reading.kept_result(asked.access, task_id)
        value, is_whole = kept["result"], kept["is_whole"]
        if value is None:
            return {"is_none": True, "is_whole": True}
        if not is_whole:
            return {
                "is_none": False,
                "is_whole": False,
                "begins": value.get("preview", ""),
                "ends": value.get("tail", ""),
            }
        return {"is_none": False, "is_whole": True, "tree": tree_of(value)}

    def _files(self, asked: Asked, task_id: str) -> dict[str, Any]:
        found = self._reading.artifacts(asked.access, task_id)["artifacts"]
        shown, pictures = [], 0
        for one in found[:_MOST_FILES]:
            kind = media_type_of(one["name"], one["kind"])
            is_picture = (
                kind in _PICTURES and one["size_bytes"] <= _LARGEST_PICTURE and pictures < _MOST_PICTURES
            )
            pictures += is_picture
            is_text = kind.startswith("text/") or kind.endswith(("json", "xml", "yaml", "toml"))
            shown.append(
                {**one, "type": kind, "is_picture": is_picture, "is_text": is_text and not is_picture}
            )
        return {"shown": shown, "count": len(found)}

    def _children(self, asked: Asked, task_id: str) -> dict[str, Any]:
        page = self._reading.tasks(asked.access, parent_id=task_id, limit=_MOST_CHILDREN)
        return {"shown": page["tasks"], "more": page["next_cursor"] is not None}


def _progress(task: dict[str, Any], state: State) -> dict[str, Any] | None:
    """The bar and the words beside it, while it is worked on."""
    if state in TERMINAL or state is State.QUEUED:
        return None
    if task["progress"] is None and state is not State.RUNNING:
        return None
    told = task["progress"] or {}
    percent = told.get("percent")
    if percent is not None:
        percent = min(100.0, max(0.0, percent)) if math.isfinite(percent) else None
    return {
        "percent": percent,
        "words": [word for word in (told.get("phase"), told.get("message")) if word],
        "step": told.get("step"),
        "step_total": told.get("step_total"),
        "eta_s": task["eta_s"] if state is State.RUNNING else None,
    }


def _times(task: dict[str, Any]) -> dict[str, float | None]:
    """How long it waited before it first began, and how long the last attempt ran."""
    first = next((one["claimed_at"] for one in task["attempts"]), None)
    began, ended = task["started_at"], task["completed_at"]
    return {
        "waited_s": None if first is None else max(0.0, seconds_between(task["submitted_at"], first)),
        "ran_s": max(0.0, seconds_between(began, ended)) if began and ended else None,
    }
