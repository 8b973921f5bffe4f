"""Task updates: following changes, and the status text that clients show."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import mcp_types as types
from msgspec import structs

from ..core.lifecycle import State
from ..core.task import TaskError
from ..core.times import span
from ..errors import StoreBusy, StoreUnavailable
from ..service.tasks import TaskService, TaskStatus
from ..tools.estimates import ExpectedRuntime

_TRY_AGAIN_S = 1.0


@asynccontextmanager
async def changes_of(service: TaskService, task_ids: Sequence[str]) -> AsyncIterator[asyncio.Event]:
    """Yield an event that is set after each change of one of the tasks; spurious wake-ups are possible."""
    loop, changed = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(changed.set)

    def listen() -> list[Callable[[], None]]:
        return [service.changes.listen(f"task:{task_id}", wake) for task_id in task_ids]

    stops = await service.aio.run(listen)
    try:
        yield changed
    finally:
        for stop in stops:
            stop()


async def follow(
    service: TaskService, task_id: str, owner: str, *, with_logs: bool = False
) -> AsyncIterator[TaskStatus]:
    """Yield the task's status now and after each change; the last one is its final status.

    `with_logs` also yields when only log lines may be new. A slow reader misses intermediate statuses, never
    the last. Retries while the store is unavailable. Raises TaskNotFound.
    """
    async with changes_of(service, [task_id]) as changed:
        seen: Any = None
        while True:
            changed.clear()
            try:
                status = await service.aio.status(task_id, owner=owner)
            except (StoreUnavailable, StoreBusy):
                await asyncio.sleep(_TRY_AGAIN_S)
                continue
            task = status.task
            now = (task.state, task.attempt, task.updated_at, task.progress, len(status.questions))
            if now != seen or with_logs:
                seen = now
                yield status
            if task.finished:
                return
            await changed.wait()


def as_deleted(status: TaskStatus) -> TaskStatus:
    """Return the last status for a client that watched a task while it was deleted: cancelled."""
    error = TaskError("cancelled", "The task was deleted.")
    task = structs.replace(status.task, state=State.CANCELLED, inputs=None, error=error)
    return replace(status, task=task, position=None, eta_s=None, questions=())


Status = Literal["working", "input_required", "completed", "failed", "cancelled"]
FINISHED: frozenset[str] = frozenset({"completed", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """Progress of a task as told by the server: `percent` is 0 to 100, `estimate` the expected run time."""

    percent: float | None = None
    phase: str | None = None
    message: str | None = None
    eta_s: float | None = None
    estimate: ExpectedRuntime | None = None


@dataclass(frozen=True, slots=True)
class LogLine:
    """One log line of a task; `seq` counts from 1."""

    seq: int
    ts: str
    stream: str
    level: str
    message: str


@dataclass(frozen=True, slots=True)
class Update:
    """Status of a task on the client's side. `questions` are the open ones, as requests by key."""

    task_id: str
    status: Status
    message: str = ""
    progress: TaskProgress | None = None
    questions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    #: Poll interval that the server asks for.
    poll_s: float | None = None
    #: The result, from servers that deliver it only once.
    result: types.CallToolResult | None = None

    @property
    def finished(self) -> bool:
        return self.status in FINISHED

    @property
    def fingerprint(self) -> str:
        """Hash of the visible content, equal across processes; the time left is not part of it."""
        progress = self.progress
        shown = () if progress is None else (progress.percent, progress.phase, progress.message)
        # With progress, the message only repeats it, with the time left.
        message = self.message if progress is None or self.finished else ""
        told = [self.status, message, shown, sorted(self.questions)]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def status_message(status: TaskStatus) -> str:
    """Return one line about the task: phase, progress and time left."""
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
