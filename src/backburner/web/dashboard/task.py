"""Page of one task: status, timeline, log, inputs, result and artifacts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ...core.lifecycle import TERMINAL, State
from ...mcp.results import media_type_of
from ...service.names import owner_name
from ...service.operator import ACTION_STATES
from ..access import Access
from .pages import Dashboard, Page, PageRequest, Redirect
from .rendering import seconds_between, tree_of

_MAX_ARTIFACTS, _MAX_CHILDREN = 100, 10
#: Types that are safe in an `<img>`, as on the card.
_IMAGES = frozenset(f"image/{name}" for name in ("png", "jpeg", "gif", "webp", "avif", "bmp", "svg+xml"))
_MAX_IMAGE_BYTES, _MAX_IMAGES = 5_000_000, 6
_STATES = {
    State.INPUT_REQUIRED: "needs an answer",
    State.CANCEL_REQUESTED: "stopping",
    State.CANCELLING: "stopping",
}


class TaskPage:
    def __init__(self, dashboard: Dashboard) -> None:
        self._app, self._records = dashboard.app, dashboard.records

    @property
    def pages(self) -> list[Page]:
        at = "/dashboard/tasks/{task_id}"
        return [
            Page(at, "task.html", "tasks", self.task),
            Page(f"{at}/artifacts/{{artifact_id}}", "task.html", "tasks", self.artifact),
        ]

    def task(self, request: PageRequest) -> dict[str, Any]:
        """Return the values of the page; a beginning of the id redirects to it."""
        access, records = request.access, self._records
        task_id = records.whole_id(access, request.path["task_id"])
        if task_id != request.path["task_id"]:
            raise Redirect(f"/dashboard/tasks/{task_id}")
        task = records.task(access, task_id)
        state = State(task["state"])
        now_ms = self._app.store.now_ms()
        return {
            "task": task,
            "state_words": _STATES.get(state, str(state).replace("_", " ")),
            "owner": owner_name(task["owner"]),
            "finished": state in TERMINAL,
            "can_retry": state in ACTION_STATES["retry"],
            "known_tool": task["tool_name"] in self._app.tools,
            "reasons": self._reasons(task, state, now_ms),
            "progress": _progress(task, state),
            "times": _times(task),
            "timeline": timeline_of(task, now_ms),
            "events": event_list(task),
            "inputs": None if task["inputs"] is None else tree_of(task["inputs"]),
            "result": self._result(access, task_id, state),
            "files": self._artifacts(access, task_id),
            "children": self._children(access, task_id),
            "last_line": records.last_line(access, task_id),
        }

    def artifact(self, request: PageRequest) -> dict[str, Any]:
        """Redirect from an artifact's permanent address to a signed link."""
        task_id, artifact_id = request.path["task_id"], request.path["artifact_id"]
        own = "preview" in request.query
        raise Redirect(self._records.artifact_link(request.access, task_id, artifact_id, own=own))

    def _reasons(self, task: dict[str, Any], state: State, now_ms: int) -> list[str]:
        if state is not State.QUEUED:
            return []
        reasons = []
        queue = next((one for one in self._app.operator.queues() if one["queue"] == task["queue"]), None)
        if queue is not None and queue["paused_at"]:
            reasons.append(f"The queue {task['queue']} is paused: its tasks start once it is resumed.")
        elif task["waits_for"]:
            reasons.append(f"Waiting: {task['waits_for']}.")
        if task["position"]:
            reasons.append(f"Position {task['position']:,} in the queue {task['queue']}.")
        return reasons

    def _result(self, access: Access, task_id: str, state: State) -> dict[str, Any] | None:
        if state is not State.SUCCEEDED:
            return None
        stored = self._records.stored_result(access, task_id)
        value, is_whole = stored["result"], stored["is_whole"]
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

    def _artifacts(self, access: Access, task_id: str) -> dict[str, Any]:
        found = self._records.artifacts(access, task_id)["artifacts"]
        shown, images = [], 0
        for one in found[:_MAX_ARTIFACTS]:
            kind = media_type_of(one["name"], one["kind"])
            is_image = kind in _IMAGES and one["size_bytes"] <= _MAX_IMAGE_BYTES and images < _MAX_IMAGES
            images += is_image
            is_text = kind.startswith("text/") or kind.endswith(("json", "xml", "yaml", "toml"))
            shown.append({**one, "type": kind, "is_image": is_image, "is_text": is_text and not is_image})
        return {"shown": shown, "count": len(found)}

    def _children(self, access: Access, task_id: str) -> dict[str, Any]:
        page = self._records.tasks(access, parent_id=task_id, limit=_MAX_CHILDREN)
        return {"shown": page["tasks"], "more": page["next_cursor"] is not None}


def _progress(task: dict[str, Any], state: State) -> dict[str, Any] | None:
    if state in TERMINAL or state is State.QUEUED:
        return None
    if task["progress"] is None and state is not State.RUNNING:
        return None
    progress = task["progress"] or {}
    percent = progress.get("percent")
    if percent is not None:
        percent = min(100.0, max(0.0, percent)) if math.isfinite(percent) else None
    return {
        "percent": percent,
        "words": [word for word in (progress.get("phase"), progress.get("message")) if word],
        "step": progress.get("step"),
        "step_total": progress.get("step_total"),
        "eta_s": task["eta_s"] if state is State.RUNNING else None,
    }


def _times(task: dict[str, Any]) -> dict[str, float | None]:
    """Return the wait before the first attempt and the runtime of the last."""
    first = next((one["claimed_at"] for one in task["attempts"]), None)
    began, ended = task["started_at"], task["completed_at"]
    return {
        "waited_s": None if first is None else max(0.0, seconds_between(task["submitted_at"], first)),
        "ran_s": max(0.0, seconds_between(began, ended)) if began and ended else None,
    }


# -- timeline --------------------------------------------------------------------------------------

#: Latest attempts that a timeline shows.
_MAX_ATTEMPTS = 24
#: Smallest width of a segment, in percent.
_MIN_WIDTH = 1.2
_MAX_QUESTIONS = 100
_EVENT_LABELS = {
    "submit": "Submitted",
    "claim": "Claimed by a worker",
    "start": "Started",
    "ask": "Asked a question",
    "answer": "Answered",
    "cancel": "Cancel requested",
    "stop": "Stopping",
    "confirm": "Cancelled",
    "succeed": "Succeeded",
    "fail": "Failed",
    "retry": "Queued for a retry",
    "hand_back": "Returned to the queue",
    "time_out": "Timed out",
    "expire": "Expired",
    "told_model": "Model notified",
}
_OUTCOMES = {"timedout": "timed_out", "handedback": "handed_back"}


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the timeline. `begin` and `width` are percentages; `kind` is its CSS class."""

    kind: str
    title: str
    seconds: float
    begin: float
    width: float
    label: str = ""


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """An entry of the event list."""

    after_s: float
    at: str
    words: str
    kind: str
    attempt: int
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Timeline:
    """Contiguous segments, and questions as an overlay."""

    segments: Sequence[Segment]
    questions: Sequence[Segment]
    total_s: float
    left_out: int


def timeline_of(task: Mapping[str, Any], now_ms: int) -> Timeline:
    attempts = task["attempts"][-_MAX_ATTEMPTS:]
    left_out = len(task["attempts"]) - len(attempts)
    begin = _ms(attempts[0]["claimed_at"]) if left_out else _ms(task["submitted_at"])
    end = max(_ms(task["completed_at"]) if task["completed_at"] else now_ms, begin)
    pieces = _pieces(attempts, begin, end, open_end=task["completed_at"] is None)
    widths = _widths([till - since for _, _, _, since, till in pieces])
    places = [sum(widths[:at]) for at in range(len(widths))]
    segments = [
        Segment(kind, title, (till - since) / 1000, place, width, label)
        for (kind, title, label, since, till), place, width in zip(pieces, places, widths, strict=True)
    ]

    def place_of(ms: int) -> float:
        for (*_, since, till), place, width in zip(pieces, places, widths, strict=True):
            if ms <= till:
                return place + (width * (ms - since) / (till - since) if ms > since else 0)
        return 100.0

    questions = []
    for asked in task["all_questions"][-_MAX_QUESTIONS:]:
        since, till = _ms(asked["asked_at"]), _ms(asked["answered_at"]) if asked["answered_at"] else end
        if since >= begin:
            place = min(place_of(since), 100 - _MIN_WIDTH)
            width = max(_MIN_WIDTH, place_of(till) - place)
            title = f"Asked: {asked['action'] or 'not answered yet'}"
            questions.append(Segment("asked", title, (till - since) / 1000, place, width))
    return Timeline(segments, questions, (end - begin) / 1000, left_out)


_Piece = tuple[str, str, str, int, int]  # kind, title, label, begin, end


def _pieces(attempts: Sequence[Mapping[str, Any]], begin: int, end: int, *, open_end: bool) -> list[_Piece]:
    """Return waits and attempts in order, without gaps and without empty ones."""
    pieces: list[_Piece] = []
    at = begin
    for one in attempts:
        claimed, ended = _ms(one["claimed_at"]), _ms(one["ended_at"]) if one["ended_at"] else end
        began = _ms(one["started_at"]) if one["started_at"] else ended
        claimed, began, ended = (min(max(ms, at), end) for ms in (claimed, began, ended))
        number, told = one["attempt"], one["outcome"] or "running"
        outcome = _OUTCOMES.get(told, told)
        pieces.append(("waited", "Waited", "", at, claimed))
        pieces.append(("starting", f"Attempt {number} starting", "", claimed, began))
        kind = outcome if one["started_at"] or one["ended_at"] else "starting"
        last_ms = max(ended, began + (0 if one["ended_at"] else 1))
        pieces.append((kind, f"Attempt {number}: {outcome.replace('_', ' ')}", f"{number}", began, last_ms))
        at = max(ended, at)
    if at < end or not pieces:
        waited = ("waited", "Waits" if open_end else "Waited", "", at, max(end, at + 1))
        pieces.append(waited)
    return [piece for piece in pieces if piece[4] > piece[3]] or [("waited", "Waits", "", begin, begin + 1)]


def _widths(spans: Sequence[int]) -> list[float]:
    """Return widths in percent, proportional to time but never below the minimum."""
    narrowest = min(_MIN_WIDTH, 100 / len(spans))
    total = sum(spans)
    narrow = {at for at, one in enumerate(spans) if 100 * one / total < narrowest}
    rest = sum(one for at, one in enumerate(spans) if at not in narrow)
    free = 100 - narrowest * len(narrow)
    return [narrowest if at in narrow else free * one / rest for at, one in enumerate(spans)]


def event_list(task: Mapping[str, Any]) -> list[TimelineEvent]:
    begin = _ms(task["submitted_at"])
    return [
        TimelineEvent(
            max(0, _ms(event["ts"]) - begin) / 1000,
            event["ts"],
            _EVENT_LABELS.get(event["signal"], event["signal"]),
            event["to_state"],
            event["attempt"],
            event["detail"],
        )
        for event in task["events"]
    ]


def _ms(time: str) -> int:
    return int(datetime.fromisoformat(time).timestamp() * 1000)
