"""The task card: its page as a resource, and the tools that the page calls."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from importlib.resources import files
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from mcp.server.context import CallNext, HandlerResult

from ...core.lifecycle import TERMINAL, State
from ...core.requests import log_cursor, log_seq
from ...core.task import Artifact, Task
from ...errors import ArtifactNotFound, ArtifactStorageError, BackburnerError, InvalidInputs
from ...service.tasks import LogPage, TaskResult, TaskStatus
from ...tools.spec import ToolSpec
from ...version import VERSION
from ..access import TaskAccess, unexpired
from ..client_timeouts import requesting_client
from ..dialects.server import AddedTool, Interceptor, ServerDialect
from ..dialects.two_stage.server import always_held
from ..notifications import REQUEST
from ..requests import (
    EXTENSION,
    MEDIA_TYPE,
    UI,
    RequestContext,
    as_dict,
    completed,
    is_modern,
    owner_of_request,
    supports_pages,
    uses_card,
    validate,
)
from ..results import (
    ArtifactLinks,
    ResultPresenter,
    call_tool_result,
    error_as_result,
    media_type,
    text_block,
    tool_raised,
)
from ..sdk import stream_of
from ..updates import status_message

#: The same in every release: a reopened chat requests it again.
ADDRESS = "ui://backburner/task-card.html"
_PARTS = ("card.css", "text.js", "host.js", "forms.js", "files.js", "card.js")


@cache
def page() -> str:
    parts = files(__package__) / "page"
    html = (parts / "card.html").read_text("utf-8")
    for name in _PARTS:
        html = html.replace(f"/* {name} */", (parts / name).read_text("utf-8"))
    return html.replace("{VERSION}", VERSION)


#: No origins and no permissions; the host draws the border.
_META = {UI: {"prefersBorder": True}}
_LISTED = {
    "uri": ADDRESS,
    "name": "backburner-task-card",
    "title": "Task card",
    "description": "Shows a task while it runs: progress, log, questions, files and result",
    "mimeType": MEDIA_TYPE,
    "_meta": _META,
}
_FRESH_MS = 3_600_000


class TaskCard(ServerDialect):
    """Card for the calls of slow tools. `others` are dialects that may take a call."""

    def __init__(self, access: TaskAccess, others: Sequence[ServerDialect]) -> None:
        self._access = access
        self._others = others
        self._tools = CardTools(access)

    @property
    def _is_on(self) -> bool:
        return self._access.settings.mcp.card

    def added_tools(self) -> Mapping[str, AddedTool]:
        return self._tools.added_tools() if self._is_on else {}

    def interceptors(self) -> Mapping[str, Interceptor]:
        if not self._is_on:
            return {}
        return {"resources/list": self.list_resources, "resources/read": self.read}

    def announce(self, capabilities: dict[str, Any], version: str) -> None:
        if self._is_on:
            capabilities["extensions"] = {EXTENSION: {}, **(capabilities.get("extensions") or {})}

    def describe(self, ctx: RequestContext, spec: ToolSpec, tool: dict[str, Any]) -> dict[str, Any]:
        """Return a slow tool with its card.

        A long call returns a handle, so the output schema is dropped, unless another dialect takes the call.
        """
        if not uses_card(ctx, spec, self._access.settings):
            return tool
        meta = tool.get("_meta") or {}
        shown = {**tool, "_meta": {**meta, UI: {**(meta.get(UI) or {}), "resourceUri": ADDRESS}}}
        handed_out = not always_held(spec, self._access.settings)
        if handed_out and not any(other.takes(ctx, spec) for other in self._others):
            shown.pop("outputSchema", None)
        return shown

    async def list_resources(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        result = as_dict(await call_next(ctx))
        if result.get("nextCursor") or not supports_pages(ctx):
            return result
        return {**result, "resources": [*result["resources"], _LISTED]}

    async def read(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        if (ctx.params or {}).get("uri") != ADDRESS:
            return await call_next(ctx)
        validate(ctx)
        contents = {"uri": ADDRESS, "mimeType": MEDIA_TYPE, "text": page(), "_meta": _META}
        result: dict[str, Any] = {"contents": [contents]}
        if is_modern(ctx):
            result |= {"ttlMs": _FRESH_MS, "cacheScope": "public"}
        return completed(ctx, result)


if TYPE_CHECKING:
    from ...core.schema import SchemaCheck


#: Log lines when a card opens, characters per line, and characters per answer.
LOG_LINES, _LINE_CHARS, _LOG_CHARS = 100, 2000, 250_000
_MOST_ARTIFACTS = 50
_MOST_QUESTIONS = 20
_RESULT_CHARS = 20_000
#: Total size of the images in a result, in base64.
_IMAGE_CHARS = 2_000_000
#: Tokens of a result that the card tells the model.
_TOLD_TOKENS = 4000

_ENDS: Mapping[State, str] = {
    State.SUCCEEDED: "has succeeded",
    State.FAILED: "has failed",
    State.CANCELLED: "was cancelled",
    State.TIMED_OUT: "took longer than it may, and was ended",
}


def described(status: TaskStatus, title: str) -> dict[str, Any]:
    """Return the status of a task."""
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
    """Return new log lines; `skipped` were written before the first line shown.

    With `more` than fit, the card reads the end of the log.
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


def artifacts_described(task: Task, artifacts: Sequence[Artifact], links: ArtifactLinks) -> dict[str, Any]:
    """Return the latest files of a task, without the file of a large result."""
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


def outcome_described(outcome: TaskResult, presenter: ResultPresenter) -> dict[str, Any]:
    """Return the result of a finished task, or its error."""
    task = outcome.task
    if task.state is not State.SUCCEEDED and not tool_raised(task):
        return {"text": _cut(_why(task)), "images": [], "failed": True}
    result = call_tool_result(outcome, replace(presenter, most_tokens=_RESULT_CHARS // 4), typed=False)
    images, left = [], _IMAGE_CHARS
    for block in result["content"]:
        if block.get("type") == "image" and len(block["data"]) <= left:
            images.append({"type": block["mimeType"], "data": block["data"]})
            left -= len(block["data"])
    return {"text": _cut(_text(result)), "images": images, "failed": task.state is not State.SUCCEEDED}


def _why(task: Task) -> str:
    """Return the reason for a missing result; for a cancelled task the given reason."""
    if task.state is State.CANCELLED:
        return task.cancel_reason or ""
    return task.error.message if task.error else ""


def _text(result: Mapping[str, Any]) -> str:
    return "\n".join(block["text"] for block in result["content"] if block.get("type") == "text")


def _cut(text: str) -> str:
    return text if len(text) <= _RESULT_CHARS else f"{text[:_RESULT_CHARS]}…"


def what_is_told(outcome: TaskResult, presenter: ResultPresenter) -> dict[str, str]:
    """Return the end of a task for the model: a sentence, and the text with the result."""
    task = outcome.task
    sentence = f"Task {task.task_id} ({task.tool_name}) {_ENDS[task.state]}."
    most = _TOLD_TOKENS if presenter.most_tokens is None else min(_TOLD_TOKENS, presenter.most_tokens)
    if task.state is State.SUCCEEDED or tool_raised(task):
        result = call_tool_result(outcome, replace(presenter, most_tokens=most), typed=False)
        what = "Its result" if task.state is State.SUCCEEDED else "Its tool said"
        whole = f"{sentence} {what}:\n{_text(result)}"
    else:
        whole = f"{sentence} {_why(task)}".rstrip()
    return {"sentence": sentence, "whole": whole}


LOOK, FIND, CANCEL, ANSWER, FILE, TELL = (
    "backburner_card_look",
    "backburner_card_find",
    "backburner_card_cancel",
    "backburner_card_answer",
    "backburner_card_file",
    "backburner_card_tell",
)
#: Latest unfinished calls of a tool that `find` compares.
_LOOKED_AT = 20
_UNFINISHED = tuple(state for state in State if state not in (*TERMINAL, State.EXPIRED))
#: Bytes per read of a file: a multiple of three, so that base64 parts can be joined.
_PIECE = 600_000

_TEXT, _TASK = {"type": "string"}, {"task_id": {"type": "string", "maxLength": 100}}


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _schema(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return _object({**_TASK, **properties}, "task_id", *required)


_SCHEMAS: Mapping[str, tuple[str, dict[str, Any]]] = {
    LOOK: ("For the task card: how a task is, with the latest of its log", _schema(cursor=_TEXT)),
    FIND: (
        "For the task card: the task of a call that is under way",
        _object(
            {"tool_name": _TEXT, "inputs": {"type": "object"}, "request_id": {"type": ["string", "integer"]}},
            "tool_name",
            "inputs",
        ),
    ),
    CANCEL: ("For the task card: stop a task", _schema()),
    ANSWER: (
        "For the task card: what its user says to the questions of a task",
        _schema(("answers",), answers={"type": "object"}),
    ),
    FILE: (
        "For the task card: a piece of a file that a task has made",
        _schema(("artifact_id",), artifact_id=_TEXT, offset={"type": "integer", "minimum": 0}),
    ),
    TELL: (
        "For the task card: what to tell the model of the end of a task, and that the host has taken it",
        _schema(told={"type": "boolean"}),
    ),
}


class CardTools:
    """Tools that the card's page calls; hosts hide them from models."""

    def __init__(self, access: TaskAccess) -> None:
        self._access = access
        self._handlers: Mapping[str, Callable[..., Awaitable[dict[str, Any]]]] = {
            LOOK: self.look,
            FIND: self.find,
            CANCEL: self.cancel,
            ANSWER: self.answer,
            FILE: self.file,
            TELL: self.tell,
        }

    def added_tools(self) -> dict[str, AddedTool]:
        return {name: self._own_tool(name, *_SCHEMAS[name]) for name in self._handlers}

    def _own_tool(self, name: str, description: str, schema: dict[str, Any]) -> AddedTool:
        listed = {
            "name": name,
            "description": description,
            "inputSchema": schema,
            "annotations": {"readOnlyHint": name in (LOOK, FIND, FILE), "openWorldHint": False},
            "_meta": {UI: {"visibility": ["app"]}},
        }
        return AddedTool(name, listed, partial(self._call, name), is_for=supports_pages)

    async def _call(self, name: str, ctx: RequestContext, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return a `CallToolResult`; errors are in it, with a code for the page."""
        try:
            _check(name, arguments)
            await self._access.ready()
            body = await self._handlers[name](**arguments)
        except BackburnerError as error:
            return error_as_result(error)
        return {"content": [text_block(name)], "structuredContent": body, "isError": False}

    # -- the tools

    async def look(self, task_id: str, cursor: str | None = None) -> dict[str, Any]:
        """Return a task's status with log lines after the cursor, or the last ones without a cursor."""
        access, owner = self._access, owner_of_request()
        access.open_calls.touch(task_id)
        return await access.service.aio.run(self._look, task_id, cursor, owner, access.presenter)

    def _look(self, task_id: str, cursor: str | None, owner: str, presenter: Any) -> dict[str, Any]:
        service, links = self._access.service, self._access.links
        status = unexpired(service.status(task_id, owner=owner))
        page = (
            service.last_logs(task_id, owner=owner, limit=LOG_LINES)
            if cursor is None
            else service.logs(task_id, owner=owner, cursor=cursor, limit=LOG_LINES * 5)
        )
        first = page.lines[0].seq if page.lines else log_seq(page.next_cursor) + 1
        artifacts = service.artifacts(task_id, owner=owner)
        body = {
            **described(status, self._title(status.task.tool_name)),
            "log": log_described(page, skipped=first - 1 if cursor is None else 0),
            "artifacts": artifacts_described(status.task, artifacts, links),
            "tells": self._access.settings.mcp.card_tells,
            "now": service.store.now_ms(),
        }
        if status.task.finished:
            body["outcome"] = outcome_described(TaskResult(status.task, artifacts), presenter)
        return body

    def _title(self, tool_name: str) -> str:
        tools = self._access.app.tools
        return (tools.get(tool_name).title if tool_name in tools else "") or tool_name

    async def find(
        self, tool_name: str, inputs: dict[str, Any], request_id: str | int | None = None
    ) -> dict[str, Any]:
        """Return the unfinished task of a call; of several, that of this connection, else the newest.

        `request_id` is the JSON-RPC id of the call, if the host names it.
        """
        find = partial(self._find, tool_name, inputs, owner_of_request())
        found = await self._access.service.aio.run(find)
        rank = partial(self._rank, request_id)
        return {"task_id": max(found, key=rank, default=None)}

    def _find(self, tool_name: str, inputs: dict[str, Any], owner: str) -> list[str]:
        service = self._access.service
        page = service.list(owner=owner, states=_UNFINISHED, tool_name=tool_name, limit=_LOOKED_AT)
        ids = [task.task_id for task in page.tasks]
        return [one for one in ids if service.status(one, owner=owner).task.inputs == inputs]

    def _rank(self, request_id: str | int | None, task_id: str) -> tuple[bool, ...]:
        """Return whether a call held for the task is of this connection, has that id, is of this client."""
        ctx = REQUEST.get()
        assert ctx is not None
        stream, client = stream_of(ctx.session), requesting_client(ctx)
        ranks = [
            (stream_of(one.session) == stream, one.request_id == request_id, requesting_client(one) == client)
            for one in self._access.open_calls.holders(task_id)
        ]
        return max(ranks, default=(False, False, False))

    async def cancel(self, task_id: str) -> dict[str, Any]:
        await self._access.head(task_id)
        status = await self._access.service.aio.cancel(
            task_id, owner=owner_of_request(), reason="Its user cancelled it on the card."
        )
        return {"task_id": task_id, "state": status.task.state}

    async def answer(self, task_id: str, answers: dict[str, Any]) -> dict[str, Any]:
        """Store the user's answers."""
        await self._access.head(task_id)
        status = await self._access.service.aio.answer_input(task_id, answers, owner=owner_of_request())
        return {"task_id": task_id, "state": status.task.state}

    async def file(self, task_id: str, artifact_id: str, offset: int = 0) -> dict[str, Any]:
        read = partial(self._read, task_id, artifact_id, offset, owner_of_request())
        data, size = await self._access.service.aio.run(read)
        whole = offset + len(data) >= size
        return {"data": base64.b64encode(data).decode(), "next_offset": None if whole else offset + len(data)}

    def _read(self, task_id: str, artifact_id: str, offset: int, owner: str) -> tuple[bytes, int]:
        service = self._access.service
        unexpired(service.status(task_id, owner=owner))
        artifact = service.store.artifact(artifact_id)
        if artifact.task_id != task_id:
            raise ArtifactNotFound(artifact_id=artifact_id)
        try:
            return self._access.app.artifacts.read(artifact, offset, _PIECE), artifact.size_bytes
        except ArtifactStorageError:
            raise  # temporary
        except OSError:
            raise ArtifactNotFound(artifact_id=artifact_id) from None

    async def tell(self, task_id: str, told: bool = False) -> dict[str, Any]:
        """Return what to tell the model, unless it knows; with `told`, record that the host has taken it."""
        access, owner = self._access, owner_of_request()
        service, aio = access.service, access.service.aio
        if told:
            await aio.run(service.tell_model, task_id, owner=owner)
            return {"tell": False}
        outcome = await aio.result(task_id, owner=owner)
        if await aio.run(service.is_model_told, task_id, owner=owner):
            return {"tell": False}
        return {"tell": True, **await aio.run(what_is_told, outcome, access.presenter)}


def _check(name: str, arguments: Mapping[str, Any]) -> None:
    broken = _schema_check(name).complaint(arguments, of_errors=1)
    if broken is not None:
        where = "/".join(map(str, broken.path)) or "the top level"
        raise InvalidInputs(tool_name=name, field=where, reason=broken.message)


@cache
def _schema_check(name: str) -> SchemaCheck:
    from ...core.schema import SchemaCheck

    return SchemaCheck(_SCHEMAS[name][1])
