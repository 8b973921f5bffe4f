"""Server side of the TaskId contract: calls are acknowledged, results go to the prompt log."""

from __future__ import annotations

import asyncio
import logging
from functools import cached_property
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types.jsonrpc import INVALID_PARAMS

from ....core.requests import MAX_KEY_CHARS, check_text
from ....errors import BackburnerError, TaskIdRequired, TaskNotFound
from ....service.tasks import TaskStatus
from ....tools.spec import ToolSpec
from ...access import TaskAccess
from ...errors import mcp_error
from ...requests import RequestContext, owner_of_request, request_meta
from ...updates import follow
from ..server import ServerDialect, SlowCall
from ..two_stage import wire
from .prompt_log import PromptLogs
from .wire import state_dir_in, task_id_key_in

logger = logging.getLogger(__name__)


class TaskId(ServerDialect):
    """Acknowledges calls that name their task, and writes their results."""

    def __init__(self, access: TaskAccess) -> None:
        self._access = access
        self._background: set[asyncio.Task[None]] = set()
        self._started = False

    @cached_property
    def _logs(self) -> PromptLogs:
        app = self._access.app
        return PromptLogs(app.store, app.settings, app.data_dir)

    def takes(self, ctx: RequestContext, spec: ToolSpec) -> bool:
        """Raises MCPError for a missing required id, and for one that is not text."""
        meta = request_meta(ctx)
        key = task_id_key_in(meta)
        if key not in meta:
            if spec.requires_task_id:
                raise mcp_error(TaskIdRequired(tool_name=spec.name))
            return False
        if not isinstance(meta[key], str) or not meta[key].strip():
            raise MCPError(INVALID_PARAMS, f"_meta.{key} must be text that is not empty")
        return True

    def wake(self) -> None:
        """Write results left by an earlier server; later calls do nothing."""
        if not self._started:
            self._started = True
            self._do(self._catch_up())

    async def answer(self, call: SlowCall) -> dict[str, Any]:
        """Acknowledge the call once its task is on disk.

        The same id and inputs give the same task. Raises IdempotencyConflict for other inputs,
        StateDirRefused, and what `submit` raises.
        """
        await self._access.ready()
        meta = request_meta(call.ctx)
        key = task_id_key_in(meta)
        task_id = check_text(f"_meta.{key}", meta[key], MAX_KEY_CHARS)
        run, owner = self._access.service.aio.run, owner_of_request()
        folder = state_dir_in(meta)
        over_stdio = call.ctx.request is None  # the host is then the user of this server
        log = await run(self._logs.enter, folder, task_id, owner, call.spec.name, anywhere=over_stdio)
        try:
            status = await self._access.submit(call.ctx, call.spec, answers=call.answers, external_id=task_id)
        except BackburnerError:
            await run(log.withdraw, task_id, owner)
            raise
        self._do(self._follow(status.task_id, owner))
        return acknowledgement(task_id, status, typed=call.spec.output_schema is not None)

    async def _catch_up(self) -> None:
        await self._access.ready()
        # Not on the service's threads, which only servers with tasks start.
        await asyncio.to_thread(self._logs.catch_up)
        for task_id, owner in await asyncio.to_thread(self._logs.unfinished):
            self._do(self._follow(task_id, owner))

    async def _follow(self, task_id: str, owner: str) -> None:
        """Update the files until the task ends."""
        written = None
        async for status in follow(self._access.service, task_id, owner):
            if status.task.state is not written:
                written = status.task.state
                await self._access.service.aio.run(self._logs.catch_up)

    def _do(self, work: Any) -> None:
        async def quietly() -> None:
            try:
                await work
            except (BackburnerError, OSError) as error:
                if not isinstance(error, TaskNotFound):
                    logger.warning("Prompt log not updated; retried with the next task or start: %s", error)

        task = asyncio.create_task(quietly())
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def acknowledgement(task_id: str, status: TaskStatus, *, typed: bool) -> dict[str, Any]:
    """Return the answer to the call, without a result."""
    text = f"Accepted as task {task_id}. The result will be in the prompt log."
    state = wire.STATUS[status.task.state]
    return wire.handle(status.task_id, state, text, typed=typed, task_id=task_id)
