"""Host side of the TaskId contract: reads the prompt log and resolves pending calls."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import mcp_types as types

from ....core.files import read_json, write_json
from ....errors import ConfigError, NoResultInTime, NotOffered, UnknownHandle
from ...connection import Link
from ...results import text_block, value_result
from ...updates import Update
from ..client import ClientDialect, Subscription
from .wire import FAILED, NAME, STATE_FILE, TASK_ID_KEY, TASKS_KEY, naming_task, result_prompt, state_dir_in


class TaskIdClient(ClientDialect):
    """The poller's tools only acknowledge calls; results are in the prompt log."""

    name: ClassVar[str] = NAME

    def __init__(self, poller: HostPoller) -> None:
        self._poller = poller

    async def start(self, tool_name: str, arguments: Mapping[str, Any]) -> str | None:
        return await self._poller.start(tool_name, arguments) if self._poller.is_for(tool_name) else None

    def can_resume(self, task_id: str, link: Link, *, own: bool) -> bool:
        return own or self._poller.is_pending(task_id)

    async def read(self, task_id: str) -> Update:
        call = self._poller.pending.get(task_id)
        if call is None:
            raise UnknownHandle(task_id=task_id)
        if call.prompt is not None:
            return Update(task_id, "completed")
        status = await self._poller.status(task_id)
        return Update(task_id, "working", message=str((status or {}).get("status") or ""))

    async def result(self, task_id: str) -> types.CallToolResult:
        return await self._poller.wait(task_id)

    async def cancel(self, task_id: str) -> None:
        raise NotOffered(what="a way to cancel", task_id=task_id)

    async def answer(self, task_id: str, answers: Mapping[str, Any]) -> None:
        raise NotOffered(what="questions", task_id=task_id)

    @contextlib.asynccontextmanager
    async def subscribed(self, task_id: str) -> AsyncIterator[Subscription]:
        subscription = Subscription(asyncio.Event())

        async def ring() -> None:
            await self._poller.arrived(task_id)
            subscription.event.set()

        ringing = asyncio.ensure_future(ring())
        try:
            yield subscription
        finally:
            ringing.cancel()
            await asyncio.gather(ringing, return_exceptions=True)


logger = logging.getLogger(__name__)

_CHUNK = 1 << 20
_CHUNKS_AT_ONCE = 8
_TAIL = 256


@dataclass(frozen=True, slots=True)
class Position:
    """A position in a log: inode, offset of a line, and the bytes before it for verification."""

    inode: int
    offset: int
    tail: str = ""

    to_dict = asdict


class LogTail:
    """Reads complete lines that are new since the last read. Not thread-safe."""

    def __init__(self, path: Path, position: Position | None = None) -> None:
        self._path = path
        self._start = position
        self._descriptor: int | None = None
        self._inode = 0
        self._offset = 0  # of the first unread byte
        self._line = bytearray()  # beginning of an incomplete line
        self._tail = b""  # last bytes before that line
        self._seen: tuple[int, int] | None = None  # size and mtime at the last read
        #: Total bytes read.
        self.bytes_read = 0

    @property
    def position(self) -> Position | None:
        """Position of the next line; None if there was no file yet."""
        if self._descriptor is None:
            return self._start
        return Position(self._inode, self._offset - len(self._line), self._tail.hex())

    def skip_to_end(self) -> None:
        """Skip the existing content."""
        if self._descriptor is None and not self._open():
            return
        assert self._descriptor is not None, "it was opened"
        self._line.clear()
        self._offset = os.fstat(self._descriptor).st_size
        self._tail = self._bytes(min(_TAIL, self._offset), max(0, self._offset - _TAIL))

    def lines(self) -> tuple[list[bytes], bool]:
        """Return new lines, and whether more may follow at once."""
        if self._descriptor is None and not self._open():
            return [], False
        assert self._descriptor is not None, "it was opened"
        # Checked before reading, so that the rotated file is read to its end first.
        rotated = self._is_rotated()
        self._notice_truncation()
        chunk = self._bytes(_CHUNK, self._offset)
        if chunk:
            return self._split(chunk), True
        if rotated:
            self.close()
            return [], self._open()
        return [], False

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = self._start = None

    def _open(self) -> bool:
        path, at = self._path, self._start
        if at is not None:
            path = self._where_inode(at.inode) or path
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        self._inode = os.fstat(self._descriptor).st_ino
        known = at is not None and at.inode == self._inode
        self._offset = at.offset if at is not None and known else 0
        self._tail = bytes.fromhex(at.tail) if at is not None and known else b""
        self._line.clear()
        self._seen = None
        return True

    def _where_inode(self, inode: int) -> Path | None:
        """Return the file that was read last, under the name that it was rotated to."""
        with contextlib.suppress(OSError):
            for entry in os.scandir(self._path.parent):
                if entry.name.startswith(self._path.name) and entry.inode() == inode:
                    return Path(entry.path)
        return None

    def _is_rotated(self) -> bool:
        try:
            return self._path.stat().st_ino != self._inode
        except FileNotFoundError:
            return False  # the new file is not there yet

    def _notice_truncation(self) -> None:
        """Restart if the file is shorter than before, or has other text at the position.

        A new file may have the old inode and size: only an unchanged mtime proves that nothing is new.
        """
        assert self._descriptor is not None
        found = os.fstat(self._descriptor)
        size = found.st_size
        if self._seen == (size, found.st_mtime_ns):
            return
        self._seen = size, found.st_mtime_ns
        begin = self._offset - len(self._line) - len(self._tail)
        if size < self._offset or self._bytes(len(self._tail), begin) != self._tail:
            self._offset, self._tail = 0, b""
            self._line.clear()

    def _bytes(self, count: int, offset: int) -> bytes:
        assert self._descriptor is not None
        read = os.pread(self._descriptor, count, offset)
        self.bytes_read += len(read)
        return read

    def _split(self, chunk: bytes) -> list[bytes]:
        self._offset += len(chunk)
        end = chunk.rfind(b"\n") + 1
        if end == 0:
            self._line += chunk
            return []
        whole = bytes(self._line) + chunk[:end]
        self._line = bytearray(chunk[end:])
        self._tail = (self._tail + whole)[-_TAIL:] if len(whole) < _TAIL else whole[-_TAIL:]
        return whole.split(b"\n")[:-1]


class PromptLogReader:
    """Reads result prompts from a `ui-prompts.jsonl`, one reader for all pending calls."""

    def __init__(
        self,
        path: Path,
        position: Position | None,
        on_results: Callable[[dict[str, dict[str, Any]]], Any],
        *,
        poll_s: float,
    ) -> None:
        """`on_results` gets the prompts by request id, and is awaited before reading continues."""
        self._tail = LogTail(path, position)
        self._on_results = on_results
        self._poll_s = poll_s
        self._reader: asyncio.Future[None] | None = None
        self._lock = asyncio.Lock()

    @property
    def position(self) -> Position | None:
        return self._tail.position

    @property
    def bytes_read(self) -> int:
        return self._tail.bytes_read

    async def skip_to_end(self) -> None:
        async with self._lock:
            await asyncio.to_thread(self._tail.skip_to_end)

    def read_while(self, wanted: Callable[[], bool]) -> None:
        """Start reading, while `wanted` returns true."""
        if self._reader is None or self._reader.done():
            self._reader = asyncio.ensure_future(self._read(wanted))

    async def close(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        async with self._lock:
            self._tail.close()

    async def _read(self, wanted: Callable[[], bool]) -> None:
        while wanted():
            try:
                async with self._lock:
                    found, more = await asyncio.to_thread(self._read_some)
            except OSError as error:
                logger.warning("Prompt log could not be read: %s", error)
                found, more = {}, False
            if found:
                await self._on_results(found)
            if not more:
                await asyncio.sleep(self._poll_s)

    def _read_some(self) -> tuple[dict[str, dict[str, Any]], bool]:
        found: dict[str, dict[str, Any]] = {}
        more = False
        for _ in range(_CHUNKS_AT_ONCE):
            lines, more = self._tail.lines()
            for line in lines:
                found.update(result_prompt(line))
            if not more:
                break
        return found, more


_DAY_S = 86_400.0

#: Calls a tool with its name, arguments and `_meta`.
CallTool = Callable[[str, Mapping[str, Any], Mapping[str, Any]], Awaitable[types.CallToolResult]]


@dataclass(frozen=True, slots=True)
class AsyncTask:
    """The `asyncTask` settings of a server: acknowledged tools, and where results appear.

    `state_dir` is the server's folder; `call_meta` goes with every call.
    """

    tools: tuple[str, ...]
    state_dir: Path
    task_id_key: str = TASK_ID_KEY
    result_source: str = "ui_prompts"
    ui_prompt_file: str = "ui-prompts.jsonl"
    state_file: str = STATE_FILE
    #: Prefix of the id, from older servers.
    request_id_prefix: str = "mcp-task:"
    call_meta: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_call_meta(cls, call_meta: Mapping[str, Any], state_dir: str | Path | None = None) -> AsyncTask:
        """Parse the `ai.mcp.callMeta` of a plugin. Raises ConfigError.

        The state directory is its `chatos.uiApp.stateDir`, unless given.
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
            state_file=told.get("stateFile", STATE_FILE),
            request_id_prefix=told.get("requestIdPrefix", "mcp-task:"),
            call_meta={key: value for key, value in call_meta.items() if key != "asyncTask"},
        )


@dataclass(slots=True)
class PendingCall:
    """An acknowledged call. `prompt` is its result, until it is taken."""

    task_id: str
    tool_name: str
    started_at: float
    prompt: dict[str, Any] | None = None


class HostPoller:
    """Keeps calls pending until the prompt log has their results.

    `call` is `start` and `wait` in one. With `pending_file`, pending calls survive a restart of the host, and
    `wait` resumes each.
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
        """Bytes of the log read so far."""
        return self._log.bytes_read

    def is_for(self, tool_name: str) -> bool:
        return tool_name in self.settings.tools

    def is_pending(self, task_id: str) -> bool:
        return task_id in self.pending

    # -- calling

    async def call(self, tool_name: str, arguments: Mapping[str, Any]) -> types.CallToolResult:
        """Call a tool and wait for its result; cancelling abandons the call.

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
        """Make the call and return its task id once it is acknowledged.

        It is stored as pending before it is sent, so a host that dies loses no result. `wait` returns the
        error of a refused call.
        """
        task_id = str(uuid.uuid4())
        async with self._beginning:
            if not self.pending:
                await self._log.skip_to_end()  # existing lines are older than our calls
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
        """Wait for the result of a pending call and remove the call.

        Cancelling leaves the call pending. Raises NoResultInTime and UnknownHandle.
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
            raise UnknownHandle(task_id=task_id)  # abandoned meanwhile
        result = _output(call.prompt, await self.status(task_id))
        await self.abandon(task_id)
        return result

    async def arrived(self, task_id: str) -> None:
        """Wait until the result is available, without taking it, or the call is abandoned."""
        if task_id in self.pending and self.pending[task_id].prompt is None:
            self._log.read_while(self._anything_wanted)
            await self._arrivals[task_id].wait()

    async def status(self, task_id: str) -> dict[str, Any] | None:
        """Return the task file's entry of the call, if there is one."""
        return await asyncio.to_thread(self._status, task_id)

    def _status(self, task_id: str) -> dict[str, Any] | None:
        try:
            tasks = read_json(self.settings.state_dir / self.settings.state_file).get(TASKS_KEY, [])
        except (OSError, ValueError):
            return None  # another writer is replacing it
        return next((task for task in tasks if task.get("id") == task_id), None)

    async def abandon(self, task_id: str) -> None:
        """Stop waiting for this call."""
        if self.pending.pop(task_id, None) is not None:
            self._arrivals.pop(task_id).set()
            await self._save()

    async def close(self) -> None:
        """Stop reading; pending calls stay in the file."""
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
            await self._save()  # the log position moves on, so store the results first
        for task_id in arrived:
            if task_id in self._arrivals:
                self._arrivals[task_id].set()

    async def _save(self) -> None:
        """Write the file; concurrent saves are combined."""
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
    """Return the prompt's `markdown`, `result` or `content` as the output of the tool."""
    output = next((prompt[key] for key in ("markdown", "result", "content") if prompt.get(key)), "")
    if isinstance(output, dict) and isinstance(output.get("content"), list):
        return types.CallToolResult.model_validate(output)
    shown = {"content": [text_block(output)]} if isinstance(output, str) else value_result(output)
    result = types.CallToolResult.model_validate(shown)
    # The task file may be written after the entry, and other apps may leave fields out.
    words = [prompt.get("status"), *((status or {}).get(key) for key in ("status", "resultStatus"))]
    failed = any(word in FAILED for word in words if isinstance(word, str))
    return result.model_copy(update={"is_error": True}) if failed else result


def _details(status: Mapping[str, Any] | None) -> str:
    if status is None:
        return "The task file does not know it."
    error = status.get("error")
    words = error if isinstance(error, str) or error is None else json.dumps(error, ensure_ascii=False)
    return f"The task file says {status.get('status')}" + (f": {words}" if words else ".")
