"""The host's half of the TaskId contract: a call is acknowledged at once, and stays pending here.

The result comes by the prompt log (`ui-prompts.jsonl`), which the poller reads. Sessions may come
and go meanwhile, and so may the host itself.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import mcp_types as types

from ....client_errors import NoResultInTime, UnknownHandle
from ....errors import ConfigError
from ....json_file import read_json, write_json
from ...showing import text_block, value_result
from .prompt_log_reader import Position, PromptLogReader
from .wire import FAILED, TASK_ID_KEY, TASKS_KEY, naming_task, state_dir_in

_DAY_S = 86_400.0

#: Calls a tool: its name, the arguments, and the `_meta` of the request.
CallTool = Callable[[str, Mapping[str, Any], Mapping[str, Any]], Awaitable[types.CallToolResult]]


@dataclass(frozen=True, slots=True)
class AsyncTask:
    """The `asyncTask` settings of a server: which tools are acknowledged only, and where results appear.

    `state_dir` is where the server writes; `call_meta` goes with every call.
    """

    tools: tuple[str, ...]
    state_dir: Path
    task_id_key: str = TASK_ID_KEY
    result_source: str = "ui_prompts"
    ui_prompt_file: str = "ui-prompts.jsonl"
    state_file: str = "mcp_tasks.v1.json"
    #: Put before the id by older servers.
    request_id_prefix: str = "mcp-task:"
    call_meta: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_call_meta(cls, call_meta: Mapping[str, Any], state_dir: str | Path | None = None) -> AsyncTask:
        """From the `ai.mcp.callMeta` of a plugin. Raises ConfigError.

        The state directory is `chatos.uiApp.stateDir` in there, unless it is given.
        """
        told = call_meta.get("asyncTask")
        if not isinstance(told, Mapping) or not isinstance(told.get("tools"), list):
            raise ConfigError(setting="asyncTask", reason="there is no asyncTask with a list of tools")
        folder = state_dir or state_dir_in(call_meta)
        if not folder:
            raise ConfigError(setting="asyncTask", reason="no state directory: set chatos.uiApp.stateDir")
        if (source := told.get("resultSource", "ui_prompts")) != "ui_prompts":
            raise ConfigError(setting="asyncTask.resultSource", reason=f"{source!r} is not ui_prompts")
        return cls(
            tools=tuple(told["tools"]),
            state_dir=Path(folder).expanduser(),
            task_id_key=told.get("taskIdKey", TASK_ID_KEY),
            ui_prompt_file=told.get("uiPromptFile", "ui-prompts.jsonl"),
            state_file=told.get("stateFile", "mcp_tasks.v1.json"),
            request_id_prefix=told.get("requestIdPrefix", "mcp-task:"),
            call_meta={key: value for key, value in call_meta.items() if key != "asyncTask"},
        )


@dataclass(slots=True)
class PendingCall:
    """A call that was acknowledged. `prompt` is its result once that is there, until somebody took it."""

    task_id: str
    tool_name: str
    started_at: float
    prompt: dict[str, Any] | None = None


class HostPoller:
    """Keeps calls pending until the prompt log has their results.

    `call` is all that a host needs. `start` and `wait` are its halves, for a host that shows a
    call in one session and takes its result in another. With `pending_file`, calls that were
    pending when the host stopped or died are pending again, and `wait` takes up each.
    """

    def __init__(
        self,
        call_tool: CallTool,
        settings: AsyncTask,
        *,
        pending_file: str | Path | None = None,
        time_limit_s: float | None = _DAY_S,
        poll_s: float = 0.2,
    ) -> None:
        self._call_tool = call_tool
        self.settings = settings
        self._time_limit_s = time_limit_s
        self._file = None if pending_file is None else Path(pending_file)
        kept = {} if self._file is None else read_json(self._file)
        self.pending: dict[str, PendingCall] = {
            entry["task_id"]: PendingCall(**entry) for entry in kept.get("pending", [])
        }
        self._arrivals: dict[str, asyncio.Event] = {task_id: asyncio.Event() for task_id in self.pending}
        position = kept.get("position")
        self._log = PromptLogReader(
            settings.state_dir / settings.ui_prompt_file,
            None if position is None else Position(**position),
            self._arrived,
            poll_s=poll_s,
        )
        self._beginning = asyncio.Lock()
        self._saving = asyncio.Lock()
        self._changes = self._saved = 0
        self._closing = False

    @property
    def bytes_read(self) -> int:
        """How much of the log was read so far."""
        return self._log.bytes_read

    def is_for(self, tool_name: str) -> bool:
        return tool_name in self.settings.tools

    def is_pending(self, task_id: str) -> bool:
        return task_id in self.pending

    # -- calling

    async def call(self, tool_name: str, arguments: Mapping[str, Any]) -> types.CallToolResult:
        """Call a tool and wait for its result. Cancelling it ends the wait at once, for good.

        Raises what the call raises, and NoResultInTime.
        """
        if not self.is_for(tool_name):
            return await self._call_tool(tool_name, arguments, self.settings.call_meta)
        task_id = await self.start(tool_name, arguments)
        try:
            return await self.wait(task_id)
        except asyncio.CancelledError:
            if not self._closing:
                await asyncio.shield(self.abandon(task_id))
            raise

    async def start(self, tool_name: str, arguments: Mapping[str, Any]) -> str:
        """Make the call and give its task id when it is acknowledged.

        It is kept as pending before it is sent: a host that dies in between loses no result. A
        call that the server refuses is over; `wait` gives the refusal.
        """
        task_id = str(uuid.uuid4())
        async with self._beginning:
            if not self.pending:
                await self._log.skip_to_end()  # what is there already is older than any call of ours
            self.pending[task_id] = PendingCall(task_id, tool_name, time.time())
            self._arrivals[task_id] = asyncio.Event()
        await self._save()
        try:
            meta = {**self.settings.call_meta, **naming_task(task_id, self.settings.task_id_key)}
            acknowledged = await self._call_tool(tool_name, arguments, meta)
        except BaseException:
            if not self._closing:
                await asyncio.shield(self.abandon(task_id))
            raise
        if acknowledged.is_error:
            refusal = acknowledged.model_dump(by_alias=True, mode="json", exclude_none=True)
            await self._arrived({task_id: {"result": refusal}})
        return task_id

    async def wait(self, task_id: str) -> types.CallToolResult:
        """Wait for the result of a pending call; it is pending no more when this returns.

        Cancelling this leaves the call pending. Raises NoResultInTime and UnknownHandle.
        """
        if task_id not in self.pending:
            raise UnknownHandle(task_id=task_id)
        call = self.pending[task_id]
        self._log.read_while(self._anything_wanted)
        limit_s = self._time_limit_s
        left_s = None if limit_s is None else max(0.0, call.started_at + limit_s - time.time())
        try:
            async with asyncio.timeout(None if call.prompt else left_s):
                await self.arrived(task_id)
        except TimeoutError:
            details = _details(await self.status(task_id))
            await self.abandon(task_id)
            raise NoResultInTime(task_id=task_id, limit_s=limit_s, details=details) from None
        if call.prompt is None:
            raise UnknownHandle(task_id=task_id)  # given up by another meanwhile
        result = _output(call.prompt, await self.status(task_id))
        await self.abandon(task_id)
        return result

    async def arrived(self, task_id: str) -> None:
        """Wait until the result is there, without taking it, or the call is given up."""
        if task_id in self.pending and self.pending[task_id].prompt is None:
            self._log.read_while(self._anything_wanted)
            await self._arrivals[task_id].wait()

    async def status(self, task_id: str) -> dict[str, Any] | None:
        """What the server's task file says about the call, if there is one."""
        return await asyncio.to_thread(self._status, task_id)

    def _status(self, task_id: str) -> dict[str, Any] | None:
        try:
            tasks = read_json(self.settings.state_dir / self.settings.state_file).get(TASKS_KEY, [])
        except (OSError, ValueError):
            return None  # being written by one who does not write in one step
        return next((task for task in tasks if task.get("id") == task_id), None)

    async def abandon(self, task_id: str) -> None:
        """Wait for this call no more."""
        if self.pending.pop(task_id, None) is not None:
            self._arrivals.pop(task_id).set()
            await self._save()

    async def close(self) -> None:
        """Stop reading. What is pending stays so in the file, for the next run."""
        self._closing = True
        await self._log.close()

    # -- the log

    def _anything_wanted(self) -> bool:
        return any(call.prompt is None for call in self.pending.values())

    async def _arrived(self, prompts: Mapping[str, dict[str, Any]]) -> None:
        prefix = self.settings.request_id_prefix
        arrived = []
        for request_id, prompt in prompts.items():
            call = self.pending.get(request_id) or self.pending.get(request_id.removeprefix(prefix))
            if call is not None and call.prompt is None:
                call.prompt = prompt
                arrived.append(call.task_id)
        if arrived:
            await self._save()  # the log is read on from here, so the results must not be forgotten
        for task_id in arrived:
            if task_id in self._arrivals:
                self._arrivals[task_id].set()

    async def _save(self) -> None:
        """Write the file; calls that come together are written together."""
        if self._file is None:
            return
        self._changes += 1
        wanted = self._changes
        async with self._saving:
            if self._saved >= wanted:
                return
            self._saved = self._changes
            position = self._log.position
            entries = [asdict(call) for call in self.pending.values()]
            kept = {"position": None if position is None else position.to_dict(), "pending": entries}
            await asyncio.to_thread(write_json, self._file, kept)


def _output(prompt: Mapping[str, Any], status: Mapping[str, Any] | None) -> types.CallToolResult:
    """The prompt's `markdown`, or else its `result` or `content`, as the output of the tool."""
    output = next((prompt[key] for key in ("markdown", "result", "content") if prompt.get(key)), "")
    if isinstance(output, dict) and isinstance(output.get("content"), list):
        return types.CallToolResult.model_validate(output)
    shown = {"content": [text_block(output)]} if isinstance(output, str) else value_result(output)
    result = types.CallToolResult.model_validate(shown)
    # The task file may be written after the entry, and other apps' entries may say nothing.
    words = [prompt.get("status"), *((status or {}).get(key) for key in ("status", "resultStatus"))]
    failed = any(word in FAILED for word in words if isinstance(word, str))
    return result.model_copy(update={"is_error": True}) if failed else result


def _details(status: Mapping[str, Any] | None) -> str:
    if status is None:
        return "The task file does not know it."
    error = status.get("error")
    words = error if isinstance(error, str) or error is None else json.dumps(error, ensure_ascii=False)
    return f"The task file says {status.get('status')}" + (f": {words}" if words else ".")
