"""The tasks extension for the SDK's own `Client`, and the notifications that ring our bells.

async with Client(url, extensions=[TasksExtension()]) as client:
    result = await client.call_tool("relax", {...})      # a task is waited for, unseen
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

import mcp_types as types
from mcp.client.extension import ClaimContext, ClientExtension, NotificationBinding, ResultClaim
from mcp.client.session import ClientRequestContext, ClientSession
from mcp.shared.exceptions import MCPError
from pydantic import ConfigDict, TypeAdapter

from ....errors import TaskWasCancelled

TASKS_EXTENSION = "io.modelcontextprotocol/tasks"
NOTIFICATIONS = ("notifications/tasks", "notifications/tasks/status", "notifications/tool_result")
_POLL_S = 1.0

OnNotification = Callable[[dict[str, Any]], None]
OnUpdate = Callable[[dict[str, Any]], Awaitable[None]]
_INPUT_REQUEST: TypeAdapter[types.InputRequest] = TypeAdapter(types.InputRequest)


class CreatedTask(types.Result):
    """`CreateTaskResult`, whose other fields are read again by `tasks/get`."""

    task_id: str
    result_type: Literal["task"] = "task"


class _Params(types.NotificationParams):
    model_config = ConfigDict(extra="allow")


class _TaskRequest(types.Request[dict[str, Any], str]):
    """Any `tasks/*` request; over HTTP its `Mcp-Name` is the task's id."""

    name_param = "taskId"


class _AnyResult(types.Result):
    model_config = ConfigDict(extra="allow")


class TasksExtension(ClientExtension):
    """Waits for the tasks that tool calls become, and answers their questions by the client's callbacks.

    `on_update` gets each state of a task that is waited for, as `tasks/get` shows it.
    """

    identifier = TASKS_EXTENSION

    def __init__(
        self, on_update: OnUpdate | None = None, *, on_notification: OnNotification | None = None
    ) -> None:
        self._on_update = on_update
        self._on_notification = on_notification

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=CreatedTask, resolve=self._resolve)]

    def notifications(self) -> Sequence[NotificationBinding[Any]]:
        if self._on_notification is None:
            return []

        async def tell(params: _Params) -> None:
            self.heard(params.model_dump(by_alias=True))

        return [NotificationBinding(method=name, params_type=_Params, handler=tell) for name in NOTIFICATIONS]

    def heard(self, params: dict[str, Any]) -> None:
        if self._on_notification is not None:
            self._on_notification(params)

    async def _resolve(self, created: CreatedTask, ctx: ClaimContext) -> types.CallToolResult:
        """Poll until the end. Raises MCPError for a task that failed, and TaskWasCancelled."""
        asked: set[str] = set()
        while True:
            task = await _send(ctx.session, "tasks/get", created.task_id)
            if self._on_update is not None:
                await self._on_update(task)
            match task["status"]:
                case "completed":
                    return types.CallToolResult.model_validate(task["result"])
                case "failed":
                    error = task["error"]
                    raise MCPError(error["code"], error["message"], error.get("data"))
                case "cancelled":
                    raise TaskWasCancelled(task_id=created.task_id)
                case "input_required":
                    new = {key: value for key, value in task["inputRequests"].items() if key not in asked}
                    asked.update(new)
                    answers = await answer_by_callbacks(ctx.session, new)
                    if answers:
                        await _send(ctx.session, "tasks/update", created.task_id, inputResponses=answers)
                        continue
            await asyncio.sleep(poll_interval_s(task) or _POLL_S)


class NewsExtension(TasksExtension):
    """Hears what the server says about tasks, but does not ask for any."""

    identifier = "backburner/news"

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return []


async def _send(session: ClientSession, method: str, task_id: str, **params: Any) -> dict[str, Any]:
    request = _TaskRequest(method=method, params={"taskId": task_id, **params})
    result = await session.send_request(request, _AnyResult)
    return result.model_dump(by_alias=True, mode="json")


def poll_interval_s(task: Mapping[str, Any]) -> float | None:
    """How long the server asks us to wait, in either revision's words."""
    ms = task.get("pollIntervalMs") or task.get("pollInterval")
    return ms / 1000 if isinstance(ms, int | float) and ms > 0 else None


async def answer_by_callbacks(session: ClientSession, questions: dict[str, Any]) -> dict[str, Any]:
    """What the session's own callbacks (elicitation, sampling, roots) answer to requests, by their keys."""
    answers = {}
    for key, question in questions.items():
        request = _INPUT_REQUEST.validate_python(question)
        context = ClientRequestContext(session=session, request_id=key)
        answer = await session.dispatch_input_request(context, request)
        if isinstance(answer, types.ErrorData):
            raise MCPError.from_error_data(answer)
        answers[key] = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
    return answers
