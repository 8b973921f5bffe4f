"""The server half: a call that names its task is acknowledged, and its result goes to the prompt log."""

from __future__ import annotations

import asyncio
import logging
from functools import cached_property
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types.jsonrpc import INVALID_PARAMS

from ....errors import BackburnerError, TaskIdRequired, TaskNotFound
from ....service import TaskStatus
from ....task_request import MAX_KEY_CHARS, check_text
from ....tools import ToolSpec
from ...access import TaskAccess
from ...following import follow
from ...jsonrpc_errors import mcp_error
from ...request import RequestContext, owner_of_request, request_meta
from ...server_dialect import ServerDialect, SlowCall
from ..two_stage import wire as two_stage
from .prompt_logs import PromptLogs
from .wire import state_dir_in, task_id_key_in

logger = logging.getLogger(__name__)


class TaskId(ServerDialect):
    """Answers calls under the contract at once, and sees to it that their results are written."""

    def __init__(self, access: TaskAccess) -> None:
        self._access = access
        self._background: set[asyncio.Task[None]] = set()
        self._started = False

    @cached_property
    def _logs(self) -> PromptLogs:
        app = self._access.app
        return PromptLogs(app.store, app.settings, app.data_dir)

    def takes(self, ctx: RequestContext, spec: ToolSpec) -> bool:
        """Raises MCPError when the tool requires an id and there is none, and for one that is not text."""
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
        """Write what a server before this one could not write any more; only the first call does anything."""
        if not self._started:
            self._started = True
            self._do(self._catch_up())

    async def answer(self, call: SlowCall) -> dict[str, Any]:
        """Acknowledge the call: its task is on disk then, and its result will be in the prompt log.

        The same id again, with the same inputs, is the same task. Raises IdempotencyConflict for other
        inputs, StateDirRefused for a folder that is not allowed, and what `submit` raises.
        """
        await self._access.ready()
        meta = request_meta(call.ctx)
        key = task_id_key_in(meta)
        task_id = check_text(f"_meta.{key}", meta[key], MAX_KEY_CHARS)
        run, owner = self._access.service.aio.run, owner_of_request()
        folder = state_dir_in(meta)
        over_stdio = call.ctx.request is None  # so the host is the user that runs this server
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
        # Not on the service's threads, which a server without tasks never needs.
        await asyncio.to_thread(self._logs.catch_up)
        for task_id, owner in await asyncio.to_thread(self._logs.unfinished):
            self._do(self._follow(task_id, owner))

    async def _follow(self, task_id: str, owner: str) -> None:
        """Keep the files up to date until the task is over."""
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
                    logger.warning("The prompt log is behind, until the next task or start: %s", error)

        task = asyncio.create_task(quietly())
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def acknowledgement(task_id: str, status: TaskStatus, *, typed: bool) -> dict[str, Any]:
    """The answer to the call. It says nothing of the result, which comes another way."""
    text = f"Accepted as task {task_id}. The result will be in the prompt log."
    state = two_stage.STATUS[status.task.state]
    return two_stage.handle(status.task_id, state, text, typed=typed, task_id=task_id)
