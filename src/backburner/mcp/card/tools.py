"""The tools by which a card lives. They are for the page alone: hosts keep them from their models.

Each is for the owner of the request, as every tool: another's task is one that is not there.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from ...errors import ArtifactNotFound, ArtifactStorageError, BackburnerError, InvalidInputs
from ...lifecycle import TERMINAL, State
from ...service import TaskResult
from ...task_request import log_seq
from ..access import TaskAccess, present
from ..outcomes import error_as_result
from ..pages import UI, shows_pages
from ..request import RequestContext, owner_of_request
from ..server_dialect import OwnTool
from ..showing import text_block
from .describing import (
    LOG_LINES,
    artifacts_described,
    described,
    log_described,
    outcome_described,
    what_is_told,
)

if TYPE_CHECKING:
    from ...schema_check import SchemaCheck

LOOK, FIND, CANCEL, ANSWER, FILE, TELL = (
    "backburner_card_look",
    "backburner_card_find",
    "backburner_card_cancel",
    "backburner_card_answer",
    "backburner_card_file",
    "backburner_card_tell",
)
#: Among so many of the latest calls of a tool that are under way, one is looked for.
_LOOKED_AT = 20
_UNFINISHED = tuple(state for state in State if state not in (*TERMINAL, State.EXPIRED))
#: So many bytes of a file are given at once: whole threes, so that pieces in base64 can be joined.
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
        _object({"tool_name": _TEXT, "inputs": {"type": "object"}}, "tool_name", "inputs"),
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
        "For the task card: whether it is to tell the model that a task is over, and what",
        _schema(told={"type": "boolean"}),
    ),
}


class CardTools:
    """The tools of one server."""

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

    def own_tools(self) -> dict[str, OwnTool]:
        return {name: self._own_tool(name, *_SCHEMAS[name]) for name in self._handlers}

    def _own_tool(self, name: str, description: str, schema: dict[str, Any]) -> OwnTool:
        listed = {
            "name": name,
            "description": description,
            "inputSchema": schema,
            "annotations": {"readOnlyHint": name in (LOOK, FIND, FILE), "openWorldHint": False},
            "_meta": {UI: {"visibility": ["app"]}},
        }
        return OwnTool(name, listed, partial(self._call, name), is_for=shows_pages)

    async def _call(self, name: str, ctx: RequestContext, arguments: dict[str, Any]) -> dict[str, Any]:
        """A `CallToolResult`; what goes wrong is told in it, with a code for the page."""
        try:
            _check(name, arguments)
            await self._access.ready()
            body = await self._handlers[name](**arguments)
        except BackburnerError as error:
            return error_as_result(error)
        return {"content": [text_block(name)], "structuredContent": body, "isError": False}

    # -- the tools

    async def look(self, task_id: str, cursor: str | None = None) -> dict[str, Any]:
        """Where a task is, with the lines of its log after the cursor; without one, with the last of them."""
        access, owner = self._access, owner_of_request()
        access.open_calls.heard_of(task_id)
        look = partial(self._look, task_id, cursor, owner, access.showing)
        body = await access.service.aio.run(look)
        if body["finished"]:
            access.open_calls.close(task_id)
        return body

    def _look(self, task_id: str, cursor: str | None, owner: str, showing: Any) -> dict[str, Any]:
        service, links = self._access.service, self._access.links
        status = present(service.status(task_id, owner=owner))
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
            body["outcome"] = outcome_described(TaskResult(status.task, artifacts), showing)
        return body

    def _title(self, tool_name: str) -> str:
        tools = self._access.app.tools
        return (tools.get(tool_name).title if tool_name in tools else "") or tool_name

    async def find(self, tool_name: str, inputs: dict[str, Any]) -> dict[str, Any]:
        """The latest unfinished task of that call: for the card of a host that waits for its end itself."""
        find = partial(self._find, tool_name, inputs, owner_of_request())
        return {"task_id": await self._access.service.aio.run(find)}

    def _find(self, tool_name: str, inputs: dict[str, Any], owner: str) -> str | None:
        service = self._access.service
        page = service.list(owner=owner, states=_UNFINISHED, tool_name=tool_name, limit=_LOOKED_AT)
        for task in page.tasks:
            if service.status(task.task_id, owner=owner).task.inputs == inputs:
                return task.task_id
        return None

    async def cancel(self, task_id: str) -> dict[str, Any]:
        await self._access.head(task_id)
        status = await self._access.service.aio.cancel(
            task_id, owner=owner_of_request(), reason="Its user cancelled it on the card."
        )
        return {"task_id": task_id, "state": status.task.state}

    async def answer(self, task_id: str, answers: dict[str, Any]) -> dict[str, Any]:
        """Whoever a tool asks, it is the user of the client who sits before the card."""
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
        present(service.status(task_id, owner=owner))
        artifact = service.store.artifact(artifact_id)
        if artifact.task_id != task_id:
            raise ArtifactNotFound(artifact_id=artifact_id)
        try:
            return self._access.app.artifacts.read(artifact, offset, _PIECE), artifact.size_bytes
        except ArtifactStorageError:
            raise  # it may be back in a moment
        except OSError:
            raise ArtifactNotFound(artifact_id=artifact_id) from None

    async def tell(self, task_id: str, told: bool = True) -> dict[str, Any]:
        """Whether this card is the one to tell; with `told` False, it could not, and another may try."""
        access, owner = self._access, owner_of_request()
        aio = access.service.aio
        first = await aio.run(access.service.tell_model, task_id, told, owner=owner)
        if not (told and first):
            return {"tell": False}
        outcome = await aio.result(task_id, owner=owner)
        return {"tell": True, **await aio.run(what_is_told, outcome, access.showing)}


def _check(name: str, arguments: Mapping[str, Any]) -> None:
    broken = _schema_check(name).complaint(arguments, of_errors=1)
    if broken is not None:
        where = "/".join(map(str, broken.path)) or "the top level"
        raise InvalidInputs(tool_name=name, field=where, reason=broken.message)


@cache
def _schema_check(name: str) -> SchemaCheck:
    from ...schema_check import SchemaCheck

    return SchemaCheck(_SCHEMAS[name][1])
