"""Where a task is, in a few words for people."""

from __future__ import annotations

from ..lifecycle import State
from ..service import TaskStatus
from ..times import span


def status_message(status: TaskStatus) -> str:
    """What the task is at, how far it is, and how long it will take."""
    task = status.task
    if task.error is not None and task.finished:
        return task.error.message
    if task.cancel_requested and not task.finished:
        return f"Being cancelled: {task.cancel_reason}" if task.cancel_reason else "Being cancelled"
    if task.waits_for is not None:
        return f"Queued, and held: {task.waits_for}"
    if task.state is State.QUEUED:
        return "Queued" if status.position is None else f"Queued at position {status.position}"
    if task.state is State.INPUT_REQUIRED and status.questions:
        return str(status.questions[0].params.get("message") or "Waiting for an answer")
    if task.finished:
        return ""
    return progress_message(status)


def progress_message(status: TaskStatus) -> str:
    progress = status.task.progress
    percent = None if progress is None or progress.percent is None else f"{progress.percent:.0f}%"
    left = (
        None if status.eta_s is None or status.task.started_at is None else f"about {span(status.eta_s)} left"
    )
    phase = progress.phase if progress else None
    head = ", ".join(part for part in (phase, percent, left) if part)
    said = progress.message if progress else None
    return ": ".join(part for part in (head, said) if part)
