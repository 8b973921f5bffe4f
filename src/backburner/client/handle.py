"""TaskHandle: one task on a server, with its artifacts, and a file that persists open handles."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import os
import tempfile
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import mcp_types as types

from ..core.files import locked, read_json, write_json
from ..errors import ConnectionLost, DamagedDownload, NotOffered
from ..mcp.connection import Connection
from ..mcp.dialects.client import Conversation, Subscription
from ..mcp.dialects.task_tools.client import TaskToolsClient
from ..mcp.updates import LogLine, Update

_CHUNK = 1 << 20


@dataclass(frozen=True)
class RemoteArtifact:
    """A file on the server. `download` is atomic: an existing file is complete and has this hash."""

    artifact_id: str
    name: str
    kind: str
    size_bytes: int
    sha256: str
    resource: str
    download_url: str | None = None
    _connection: Connection | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, shown: dict[str, Any], connection: Connection) -> RemoteArtifact:
        known = {name: shown.get(name) for name in cls.__dataclass_fields__ if not name.startswith("_")}
        return cls(**known, _connection=connection)  # type: ignore[arg-type]

    async def download(self, to: str | Path = ".") -> Path:
        """Download to a file, or into a folder under its own name. Raises DamagedDownload."""
        target = await asyncio.to_thread(self._target, Path(to))
        descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:50]}.")
        digest = hashlib.sha256()
        try:
            with os.fdopen(descriptor, "wb") as file:
                await self._fetch(file, digest)
            if digest.hexdigest() != self.sha256:
                raise DamagedDownload(name=self.name, found=digest.hexdigest(), expected=self.sha256)
            await asyncio.to_thread(Path(temporary).replace, target)
        except BaseException:
            await asyncio.to_thread(Path(temporary).unlink, missing_ok=True)
            raise
        return target

    def _target(self, to: Path) -> Path:
        # The name comes from the server: it must not lead out of the folder.
        return to / (Path(self.name).name or self.artifact_id) if to.is_dir() else to

    async def _fetch(self, file: IO[bytes], digest: Any) -> None:
        async with contextlib.aclosing(self._chunks()) as chunks:
            async for chunk in chunks:
                digest.update(chunk)
                await asyncio.to_thread(file.write, chunk)

    async def _chunks(self) -> AsyncGenerator[bytes]:
        if self.download_url is None:
            async for chunk in self._read_resource():
                yield chunk
            return
        import httpx2

        try:
            async with (
                httpx2.AsyncClient(timeout=60) as http,
                http.stream("GET", self.download_url) as answer,
            ):
                answer.raise_for_status()
                async for chunk in answer.aiter_bytes(_CHUNK):
                    yield chunk
        except httpx2.HTTPError as error:
            raise ConnectionLost(server=self.download_url.partition("?")[0], reason=error) from error

    async def _read_resource(self) -> AsyncGenerator[bytes]:
        """Read by `resources/read` in ranges, for servers without a URL, as over stdio."""
        assert self._connection is not None, "an artifact that came from a server has its connection"
        offset = 0
        while offset < self.size_bytes:
            params = {"uri": f"{self.resource}?offset={offset}&length={_CHUNK}"}
            (part,) = (await self._connection.request("resources/read", params))["contents"]
            chunk = base64.b64decode(part["blob"]) if "blob" in part else part["text"].encode()
            if not chunk:
                return  # the hash check fails
            yield chunk
            offset += len(chunk)


@dataclass(frozen=True, slots=True)
class OpenHandle:
    """A persisted handle: server, dialect, and what was seen of the task."""

    task_id: str
    server: str
    tool_name: str
    dialect: str
    seen: str = ""
    log_cursor: str | None = None
    #: The result, from servers that deliver it only once.
    result: dict[str, Any] | None = None


class HandleFile:
    """Open handles by task id, in a file with atomic writes and a lock."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()

    def handles(self) -> dict[str, OpenHandle]:
        return {task_id: OpenHandle(**entry) for task_id, entry in read_json(self.path).items()}

    def keep(self, handle: OpenHandle, *, synced: bool = True) -> None:
        self._change(lambda entries: entries.update({handle.task_id: asdict(handle)}), synced=synced)

    def forget(self, task_id: str) -> None:
        self._change(lambda entries: entries.pop(task_id, None), synced=True)

    def _change(self, change: Callable[[dict[str, Any]], Any], *, synced: bool) -> None:
        with locked(self.path):
            entries = read_json(self.path)
            change(entries)
            write_json(self.path, entries, synced=synced)


#: Poll interval while the server promises notifications.
_TRUST_S = 30.0
#: Poll interval without the server's advice: it grows.
_FIRST_POLL_S, _GROWTH, _POLL_S = 0.05, 1.5, 2.0

OnUpdate = Callable[[Update], Any]
#: Answers questions by key; None to leave that to `TaskHandle.answer`.
Answering = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class TaskHandle:
    """A task on a server. It survives lost connections and restarts of either side."""

    def __init__(
        self,
        kept: OpenHandle,
        conversation: Conversation,
        tools: TaskToolsClient,
        *,
        file: HandleFile | None = None,
        answering: Answering | None = None,
    ) -> None:
        self._kept = kept
        self._conversation = conversation
        self._tools = tools
        self._file = file
        self._answering = answering
        self._answered: set[str] = set()
        self._result = None if kept.result is None else types.CallToolResult.model_validate(kept.result)

    def __repr__(self) -> str:
        return f"<TaskHandle {self.task_id} of {self.tool_name}, by {self._conversation.name}>"

    @property
    def task_id(self) -> str:
        return self._kept.task_id

    @property
    def tool_name(self) -> str:
        return self._kept.tool_name

    @property
    def dialect(self) -> str:
        """Dialect of the server: `2026-07-28`, `2025-11-25`, `two-stage`, `task-id` or `inline`."""
        return self._conversation.name

    def subscribed(self) -> contextlib.AbstractAsyncContextManager[Subscription]:
        """Return a context with a bell that rings on news of the task."""
        return self._conversation.subscribed(self.task_id)

    # -- reading

    async def status(self) -> Update:
        """Return the current status. Raises MCPError for an unknown task, and ConnectionLost."""
        if self._result is not None:
            return Update(self.task_id, "completed", result=self._result)
        update = await self._conversation.read(self.task_id)
        if update.result is not None:
            self._result = update.result
            self._note(synced=True, result=update.result.model_dump(by_alias=True, mode="json"))
        if update.progress is None and not update.finished:
            with contextlib.suppress(NotOffered):
                update = replace(update, progress=await self._tools.progress(self.task_id))
        return update

    async def watch(self) -> AsyncGenerator[Update]:
        """Yield changes until the task ends; the end is always the last update.

        Uses notifications where the server sends them, or else polls. Intermediate updates may be skipped. An
        update counts as seen when the next is requested; with a file of handles this survives a restart.
        """
        delay_s = _FIRST_POLL_S
        async with self.subscribed() as subscription:
            while True:
                subscription.event.clear()
                update = await self.status()
                for told in _in_order(subscription.updates, update):
                    if told.fingerprint != self._kept.seen:
                        yield told
                        self._note(seen=told.fingerprint)
                if update.finished:
                    if update.result is None:
                        self.forget()
                    return
                if await self._saw_to_questions(update):
                    continue
                delay_s = min(_GROWTH * delay_s, _POLL_S)
                wait_s = _TRUST_S if subscription.reliable else update.poll_s or delay_s
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(subscription.event.wait(), wait_s)

    async def result(self, on_update: OnUpdate | None = None) -> types.CallToolResult:
        """Wait for the end, and return the result of the call.

        A tool's own error is a result with `is_error`. Raises MCPError where the call itself would,
        TaskWasCancelled and ConnectionLost. Cancelling the wait does not affect the task.
        """
        async with contextlib.aclosing(self.watch()) as updates:
            async for update in updates:
                if on_update is not None:
                    told = on_update(update)
                    if isinstance(told, Awaitable):
                        await told
        if self._result is None:
            self._result = await self._conversation.result(self.task_id)
        self.forget()
        return self._result

    async def logs(self, *, follow: bool = False) -> AsyncGenerator[LogLine]:
        """Yield log lines not read yet; with `follow`, until the task ends. Raises NotOffered."""
        finished = not follow
        while True:
            cursor = self._kept.log_cursor
            lines, next_cursor, more = await self._tools.logs(self.task_id, cursor)
            for line in lines:
                yield line
            if next_cursor != cursor:
                self._note(log_cursor=next_cursor)
            if more:
                continue
            if finished:
                return
            update = await self._conversation.read(self.task_id)
            finished = update.finished  # one more read then gets the last lines
            if not finished:
                await asyncio.sleep(min(update.poll_s or _POLL_S, _POLL_S))

    async def artifacts(self) -> list[RemoteArtifact]:
        """Return the files made so far; some servers list them only at the end. Raises NotOffered."""
        found = await self._tools.artifacts(self.task_id)
        return [RemoteArtifact.of(shown, self._tools.connection) for shown in found]

    # -- control

    async def cancel(self) -> None:
        """Request cancellation. Harmless for a finished task."""
        await self._conversation.cancel(self.task_id)

    async def answer(self, answers: Mapping[str, Any]) -> None:
        """Answer questions by key: `{"action": "accept", "content": {…}}`, or the content alone."""
        await self._conversation.answer(self.task_id, {key: _answer(value) for key, value in answers.items()})

    async def _saw_to_questions(self, update: Update) -> bool:
        new = {key: dict(asked) for key, asked in update.questions.items() if key not in self._answered}
        if self._answering is None or not new:
            return False
        self._answered.update(new)
        with contextlib.suppress(NotOffered):
            await self._conversation.answer(self.task_id, await self._answering(new))
        return True

    # -- persistence

    def forget(self) -> None:
        """Remove it from the file of open handles. The task itself is not affected."""
        if self._file is not None:
            self._file.forget(self.task_id)
            self._file = None

    def _note(self, *, synced: bool = False, **changes: Any) -> None:
        self._kept = replace(self._kept, **changes)
        if self._file is not None:
            # Not synced by default: after a power cut an update is repeated.
            self._file.keep(self._kept, synced=synced)


def _in_order(told: deque[Update], update: Update) -> Iterator[Update]:
    """Yield the pushed updates, then the status, unless a pushed update is newer."""
    newer = bool(told)
    while told:
        yield told.popleft()
    if update.finished or not newer:
        yield update


def _answer(value: Any) -> Any:
    if isinstance(value, Mapping) and value.get("action") in ("accept", "decline", "cancel"):
        return dict(value)
    return {"action": "accept", "content": value}
