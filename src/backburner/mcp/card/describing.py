"""A task as its card shows it. All texts are as they came: the page makes them safe to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from ...lifecycle import State
from ...service import LogPage, TaskResult, TaskStatus
from ...task import Artifact, Task
from ...task_request import log_cursor
from ..links import Links, media_type
from ..outcomes import call_tool_result, tool_raised
from ..showing import Showing
from ..status_words import status_message

#: So many log lines are shown when a card is opened, so long may one be, and so long all of one answer.
LOG_LINES, _LINE_CHARS, _LOG_CHARS = 100, 2000, 250_000
_MOST_ARTIFACTS = 50
_MOST_QUESTIONS = 20
_RESULT_CHARS = 20_000
#: So large may the images in a result be together, as they are sent.
_IMAGE_CHARS = 2_000_000
#: So many tokens of its result a model is told, without asking for more.
_TOLD_TOKENS = 4000

_ENDS: Mapping[State, str] = {
    State.SUCCEEDED: "has succeeded",
    State.FAILED: "has failed",
    State.CANCELLED: "was cancelled",
    State.TIMED_OUT: "took longer than it may, and was ended",
}


def described(status: TaskStatus, title: str) -> dict[str, Any]:
    """Where a task is."""
    task, progress = status.task, status.task.progress
    return {
        "task_id": task.task_id,
        "title": title,
        "tool": task.tool_name,
        "state": task.state,
        "finished": task.finished,
        "words": "" if task.finished else status_message(status),
        "cancelling": task.cancel_requested and not task.finished,
        "position": status.position,
        "percent": None if progress is None else progress.percent,
        "phase": None if progress is None else progress.phase,
        "message": None if progress is None else progress.message,
        "eta_s": status.eta_s,
        "submitted_at": task.submitted_at,
        "started_at": task.started_at,
        "completed_at": task.completed_at,
        "attempt": task.tries,
        "questions": [
            {"key": one.key, "method": one.method, "params": dict(one.params)}
            for one in status.questions[:_MOST_QUESTIONS]
        ],
        "poll_after_ms": status.poll_after_ms,
    }


def log_described(page: LogPage, *, skipped: int) -> dict[str, Any]:
    """New lines of a log; before the first that a card shows, `skipped` others were written.

    Where there are `more` than fit, the card looks at the end of the log.
    """
    texts = [_clipped(line.message) for line in page.lines]
    fit = sum(so_far <= _LOG_CHARS for so_far in accumulate(map(len, texts)))
    lines = [
        {"seq": line.seq, "stream": line.stream, "level": line.level, "text": text}
        for line, text in zip(page.lines[:fit], texts, strict=False)
    ]
    cut = fit < len(texts)
    cursor = log_cursor(page.lines[fit - 1].seq) if cut else page.next_cursor
    return {"lines": lines, "cursor": cursor, "skipped": skipped, "more": cut or page.truncated}


def _clipped(text: str) -> str:
    over = len(text) - _LINE_CHARS
    return text if over <= 0 else f"{text[:_LINE_CHARS]}… (and {over} more characters)"


def artifacts_described(task: Task, artifacts: Sequence[Artifact], links: Links) -> dict[str, Any]:
    """The files that a task has made; if they are many, the latest. What a result is kept in is none."""
    made = [one for one in artifacts if one.kind != "result"]
    shown = made[-_MOST_ARTIFACTS:]
    return {
        "count": len(made),
        "shown": [
            {
                "artifact_id": one.artifact_id,
                "name": one.name,
                "type": media_type(one),
                "size": one.size_bytes,
                "url": None if (link := links.to(one, task.expires_at)) is None else link.url,
            }
            for one in shown
        ],
    }


def outcome_described(outcome: TaskResult, showing: Showing) -> dict[str, Any]:
    """How a finished task ended: its result, or what went wrong."""
    task = outcome.task
    if task.state is not State.SUCCEEDED and not tool_raised(task):
        return {"text": _cut(_why(task)), "images": [], "failed": True}
    result = call_tool_result(outcome, replace(showing, most_tokens=_RESULT_CHARS // 4), typed=False)
    images, left = [], _IMAGE_CHARS
    for block in result["content"]:
        if block.get("type") == "image" and len(block["data"]) <= left:
            images.append({"type": block["mimeType"], "data": block["data"]})
            left -= len(block["data"])
    return {"text": _cut(_text(result)), "images": images, "failed": task.state is not State.SUCCEEDED}


def _why(task: Task) -> str:
    """Why a task has no result; of one that was cancelled that is known, but for what was said to it."""
    if task.state is State.CANCELLED:
        return task.cancel_reason or ""
    return task.error.message if task.error else ""


def _text(result: Mapping[str, Any]) -> str:
    return "\n".join(block["text"] for block in result["content"] if block.get("type") == "text")


def _cut(text: str) -> str:
    return text if len(text) <= _RESULT_CHARS else f"{text[:_RESULT_CHARS]}…"


def what_is_told(outcome: TaskResult, showing: Showing) -> dict[str, str]:
    """What a model is told of the end of a task: in a sentence, and with the result."""
    task = outcome.task
    sentence = f"Task {task.task_id} ({task.tool_name}) {_ENDS[task.state]}."
    most = _TOLD_TOKENS if showing.most_tokens is None else min(_TOLD_TOKENS, showing.most_tokens)
    if task.state is State.SUCCEEDED or tool_raised(task):
        result = call_tool_result(outcome, replace(showing, most_tokens=most), typed=False)
        what = "Its result" if task.state is State.SUCCEEDED else "Its tool said"
        whole = f"{sentence} {what}:\n{_text(result)}"
    else:
        whole = f"{sentence} {_why(task)}".rstrip()
    return {"sentence": sentence, "whole": whole}
