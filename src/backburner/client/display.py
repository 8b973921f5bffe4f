"""Terminal display of a task: bar, phase, time left, and its log above."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import mcp_types as types
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from ..core.text import printable
from ..core.times import span
from ..errors import NotOffered
from ..mcp.updates import Update
from .handle import TaskHandle

_LEVELS = {"error": "red", "critical": "red", "warning": "yellow", "debug": "dim"}


class TaskDisplay:
    """Shows running tasks, each with a progress bar.

    with TaskDisplay() as display:
        result = await display.result(await client.start("relax", structure="Si"))
    """

    def __init__(self, console: Console | None = None, *, logs: bool = True) -> None:
        self._logs = logs
        self._progress = Progress(
            TextColumn("{task.fields[tool]}", style="bold", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[percent]:>4}", markup=False),
            TextColumn("{task.fields[said]}", markup=False),
            TimeElapsedColumn(),
            console=console or Console(stderr=True),
        )

    def __enter__(self) -> TaskDisplay:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    async def result(self, handle: TaskHandle) -> types.CallToolResult:
        """Show the task until it ends, and return its result. Raises as `TaskHandle.result` does."""
        name = printable(handle.tool_name or handle.task_id)
        row = self._progress.add_task("", total=None, tool=name, percent="", said="")
        logs = asyncio.ensure_future(self._show_logs(handle)) if self._logs else None
        try:
            result = await handle.result(lambda update: self._show(row, update))
            if logs is not None:
                await logs
            return result
        finally:
            if logs is not None:
                logs.cancel()

    def _show(self, row: TaskID, update: Update) -> None:
        progress = update.progress
        percent = 100.0 if update.status == "completed" else progress.percent if progress else None
        self._progress.update(
            row,
            total=None if percent is None else 100.0,
            completed=percent or 0.0,
            percent="" if percent is None else f"{percent:.0f}%",
            said=printable(" · ".join(_said(update))),
        )

    async def _show_logs(self, handle: TaskHandle) -> None:
        with suppress(NotOffered):
            async for line in handle.logs(follow=True):
                self._progress.console.print(
                    Text(printable(line.message), style=_LEVELS.get(line.level, "")), soft_wrap=True
                )


def _said(update: Update) -> list[str]:
    if update.finished:
        return [update.status, *([update.message] if update.message else [])]
    if update.questions:
        asked = (str((question.get("params") or {}).get("message")) for question in update.questions.values())
        return ["asks", *asked]
    if update.progress is None:
        return [update.message] if update.message else []
    progress = update.progress
    left = None if progress.eta_s is None else f"about {span(progress.eta_s)} left"
    return [part for part in (progress.phase, left, progress.message) if part]
