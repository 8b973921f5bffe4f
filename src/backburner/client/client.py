"""BackburnerClient: calls slow tools on any MCP server."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import mcp_types as types

from ..errors import CallInterrupted, ConnectionLost, NotOffered
from ..mcp.connection import Connection, Link, client_factory
from ..mcp.dialects.client import ClientDialect, Conversation, Subscription
from ..mcp.dialects.task_id.client import AsyncTask, HostPoller, TaskIdClient
from ..mcp.dialects.task_tools.client import TaskToolsClient
from ..mcp.dialects.tasks_2025.client import Questions, Tasks2025Client
from ..mcp.dialects.tasks_2026.client import Tasks2026Client, TasksExtension
from ..mcp.dialects.two_stage.client import TwoStageClient
from ..mcp.dialects.two_stage.wire import tool_result
from ..mcp.framing import Framing
from ..mcp.sdk import OnProgress, answer_by_callbacks
from ..mcp.updates import TaskProgress, Update
from .handle import HandleFile, OnUpdate, OpenHandle, TaskHandle

_MOST_ROUNDS = 10


class BackburnerClient:
    """A client of one MCP server: a URL, a command, stdio parameters, a server in this process, or an app.

        async with BackburnerClient("http://127.0.0.1:8765/mcp", handles="handles.json") as client:
            result = await client.call("relax", structure="Si")        # the final result, in any case
            handle = await client.start("relax", structure="Ge")
            async for update in handle.watch(): ...

    `elicitation_callback`, `sampling_callback` and the SDK client's other options are passed on to it.
    """

    def __init__(
        self,
        target: Any,
        *,
        token: str | None = None,
        handles: str | Path | HandleFile | None = None,
        async_task: AsyncTask | None = None,
        tasks: bool = True,
        framing: Framing = "newline",
        reconnect_s: float | None = 300.0,
        **options: Any,
    ) -> None:
        """`tasks=False` requests no tasks; `async_task` is for servers of the TaskId contract.

        `framing="lsp"` is for a command whose messages have a `Content-Length` header. Raises ConfigError.
        """
        self._file = HandleFile(handles) if isinstance(handles, str | Path) else handles
        self._questions = Questions(options.pop("elicitation_callback", None))
        options["elicitation_callback"] = self._questions.elicit
        extensions = [TasksExtension()] if tasks else []
        make = client_factory(target, token, framing=framing, extensions=extensions, **options)
        self.connection = Connection(make, _name_of(target), heard=self._heard, reconnect_s=reconnect_s)
        self._questions.ring = self.connection.ring
        self._tools = TaskToolsClient(self.connection)
        self._poller: HostPoller | None = None
        if async_task is not None:
            pending = None if self._file is None else f"{self._file.path}.pending"
            self._poller = HostPoller(self._acknowledged, async_task, pending_file=pending)
        self._dialects: tuple[ClientDialect, ...] = client_dialects(
            self.connection, self._questions, self._tools, self._poller, tasks=tasks
        )

    def _heard(self, method: str, params: Mapping[str, Any]) -> str | None:
        named = (dialect.heard(method, params) for dialect in self._dialects)
        return next((task_id for task_id in named if task_id is not None), None)

    async def __aenter__(self) -> Self:
        """Connect. Raises ConnectionLost, or its subclass NotAuthorized."""
        await self.connection.link()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._poller is not None:
            await self._poller.close()
        await self.connection.close()

    # -- calling

    async def call(
        self,
        tool_name: str,
        arguments: Mapping[str, Any] | None = None,
        /,
        *,
        on_update: OnUpdate | None = None,
        cancel_on_abort: bool = False,
        **more: Any,
    ) -> types.CallToolResult:
        """Call a tool and wait for its final result, across reconnects.

        Cancelling ends the wait; with `cancel_on_abort` also the task. Raises MCPError, TaskWasCancelled,
        ConnectionLost, and CallInterrupted if the connection broke before the call was answered.
        """
        handle = await self._start(tool_name, {**(arguments or {}), **more}, on_update, attended=False)
        try:
            return await handle.result(on_update)
        except asyncio.CancelledError:
            if cancel_on_abort:
                with contextlib.suppress(Exception):
                    await asyncio.shield(handle.cancel())
            raise

    async def start(
        self,
        tool_name: str,
        arguments: Mapping[str, Any] | None = None,
        /,
        *,
        on_update: OnUpdate | None = None,
        **more: Any,
    ) -> TaskHandle:
        """Call a tool and return its handle as soon as there is one.

        A call that the server holds has ended by then; `on_update` gets its progress.
        """
        return await self._start(tool_name, {**(arguments or {}), **more}, on_update, attended=True)

    async def _start(
        self, tool_name: str, arguments: dict[str, Any], on_update: OnUpdate | None, *, attended: bool
    ) -> TaskHandle:
        for dialect in self._dialects:
            if (task_id := await dialect.start(tool_name, arguments)) is not None:
                return self._handle(tool_name, task_id, dialect, attended=attended)
        result, link = await self._answer_to_call(tool_name, arguments, _progress(on_update))
        for dialect in self._dialects:
            if (task_id := dialect.task_in(result, link)) is not None:
                return self._handle(tool_name, task_id, dialect, attended=attended)
        kept = OpenHandle(f"inline_{uuid.uuid4().hex}", self.connection.server, tool_name, Inline.name)
        return TaskHandle(kept, Inline(tool_result(result)), self._tools)

    async def _answer_to_call(
        self, tool_name: str, arguments: dict[str, Any], on_progress: OnProgress
    ) -> tuple[dict[str, Any], Link]:
        """Return the answer to `tools/call`, after its first questions, and its link."""
        params: dict[str, Any] = {"name": tool_name, "arguments": arguments}
        tools = await self.connection.tools()
        link = await self.connection.link()
        for dialect in self._dialects:
            params = dialect.ask_for_task(link, tools.get(tool_name, {}), params)
        for _ in range(_MOST_ROUNDS):
            try:
                result = await link.request("tools/call", params, on_progress=on_progress)
            except ConnectionError as error:
                link.end()
                raise CallInterrupted(
                    server=self.connection.server, tool_name=tool_name, reason=error
                ) from error
            if result.get("resultType") != "input_required":
                return result, link
            params["inputResponses"] = await answer_by_callbacks(
                link.session, result.get("inputRequests") or {}
            )
            if "requestState" in result:
                params["requestState"] = result["requestState"]
        raise ConnectionLost(server=self.connection.server, reason=f"{tool_name} asks without end")

    async def _acknowledged(
        self, tool_name: str, arguments: Mapping[str, Any], meta: Mapping[str, Any]
    ) -> types.CallToolResult:
        link = await self.connection.link()
        params = {"name": tool_name, "arguments": dict(arguments)}
        try:
            return tool_result(await link.request("tools/call", params, meta=meta))
        except ConnectionError as error:
            link.end()
            raise CallInterrupted(server=self.connection.server, tool_name=tool_name, reason=error) from error

    # -- resuming

    async def resume(self, task_id: str) -> TaskHandle:
        """Return the handle of a task that was started earlier, with its state from the file of handles."""
        kept = self._file.handles().get(task_id) if self._file is not None else None
        dialect = await self._dialect_of(task_id, None if kept is None else kept.dialect)
        if kept is None:
            kept = OpenHandle(task_id, self.connection.server, "", dialect.name)
        self._questions.attended.add(task_id)
        return TaskHandle(kept, dialect, self._tools, file=self._file, answering=self._answering(True))

    async def open_handles(self) -> list[TaskHandle]:
        """Return the handles of this server in the file, from earlier runs."""
        kept = self._file.handles() if self._file is not None else {}
        return [
            await self.resume(entry.task_id)
            for entry in kept.values()
            if entry.server == self.connection.server
        ]

    async def _dialect_of(self, task_id: str, kept: str | None) -> ClientDialect:
        """Return the dialect in which the task began, if the server still supports it."""
        link = await self.connection.link()
        own = [dialect for dialect in self._dialects if dialect.name == kept]
        asked = [*((dialect, True) for dialect in own), *((dialect, False) for dialect in self._dialects)]
        return next(dialect for dialect, is_own in asked if dialect.can_resume(task_id, link, own=is_own))

    def _handle(
        self, tool_name: str, task_id: str, conversation: Conversation, *, attended: bool
    ) -> TaskHandle:
        kept = OpenHandle(task_id, self.connection.server, tool_name, conversation.name)
        if attended:
            self._questions.attended.add(task_id)
        if self._file is not None:
            self._file.keep(kept)
        return TaskHandle(
            kept, conversation, self._tools, file=self._file, answering=self._answering(attended)
        )

    def _answering(self, attended: bool) -> Any:
        """Return the user's callback; without one, unattended calls decline."""

        async def by_callback(questions: dict[str, Any]) -> dict[str, Any]:
            return await answer_by_callbacks((await self.connection.link()).session, questions)

        async def refuse(questions: dict[str, Any]) -> dict[str, Any]:
            return {key: {"action": "cancel"} for key in questions}

        if self._questions.callback is not None:
            return by_callback
        return None if attended else refuse


def _progress(on_update: OnUpdate | None) -> OnProgress:
    """Return a callback for the progress of a held call."""

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        if on_update is not None:
            percent = 100 * progress / total if total else None
            told = on_update(Update("", "working", message or "", TaskProgress(percent, None, message)))
            if asyncio.iscoroutine(told):
                await told

    return on_progress


def _name_of(target: Any) -> str:
    """Return the server's name for errors and the file of handles, without a password."""
    if isinstance(target, str):
        scheme, slashes, rest = target.partition("://")
        host, slash, path = rest.partition("/")
        return f"{scheme}{slashes}{host.rpartition('@')[2]}{slash}{path}"
    if isinstance(target, list | tuple):
        return " ".join(map(str, target))
    if command := getattr(target, "command", None):
        return " ".join([command, *target.args])
    return str(getattr(target, "name", None) or type(target).__name__)


def client_dialects(
    connection: Connection,
    questions: Questions,
    tools: TaskToolsClient,
    poller: HostPoller | None,
    *,
    tasks: bool,
) -> tuple[ClientDialect, ...]:
    """Return the dialects in order; without `tasks` the protocol's own tasks are left out."""
    return (
        *([TaskIdClient(poller)] if poller is not None else []),
        *([Tasks2026Client(connection), Tasks2025Client(connection, questions)] if tasks else []),
        TwoStageClient(connection, tools, asks=tasks),
    )


class Inline:
    """Conversation about a call that returned its result at once."""

    name: ClassVar[str] = "inline"

    def __init__(self, result: types.CallToolResult) -> None:
        self._result = result

    async def read(self, task_id: str) -> Update:
        return Update(task_id, "completed")

    async def result(self, task_id: str) -> types.CallToolResult:
        return self._result

    async def cancel(self, task_id: str) -> None:
        return

    async def answer(self, task_id: str, answers: Mapping[str, Any]) -> None:
        raise NotOffered(what="questions", task_id=task_id)

    @contextlib.asynccontextmanager
    async def subscribed(self, task_id: str) -> AsyncIterator[Subscription]:
        yield Subscription(asyncio.Event())
