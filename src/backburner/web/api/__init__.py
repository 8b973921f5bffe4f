"""The HTTP API at `/api/v1`: tasks and the server, for programs.

Function names give the operation ids of the OpenAPI document.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ...app import Backburner
from ...core.requests import TaskRequest
from ...core.task import Resources
from ...service.operator import OperatorService
from ...service.tasks import TaskService, TaskStatus
from ..access import SAFE_HEADERS, Access, Blocking
from ..streams import Streams
from ..task_records import TaskRecords
from . import models as m
from .framework import CheckedRoute, below, json_response, new_api, openapi, problems

PATH = "/api/v1"
#: Size of a request body beside the inputs of a tool.
_BESIDE_INPUTS = 65_536


@dataclass(frozen=True, slots=True)
class Call:
    """One API call: who calls, and what it works on."""

    app: Backburner
    records: TaskRecords
    streams: Streams
    blocking: Blocking
    access: Access

    @property
    def service(self) -> TaskService:
        return self.app.service

    @property
    def operator(self) -> OperatorService:
        return self.app.operator

    def owner(self, name: str | None) -> str | None:
        """Return the owner to filter by. Blocks."""
        return self.access.selected_owner(name, self.app.store)

    async def read(self, read: Callable[[], Any]) -> Response:
        """Read and serialize on a thread."""
        return await self.blocking.run(lambda: json_response(read()))

    async def change(self, function: Callable[..., Any], task_id: str, *args: Any, **options: Any) -> Any:
        """Apply a method of TaskService to a task."""
        self.access.require_operate()
        return await self.blocking.run(function, task_id, *args, owner=self.access.owner, **options)

    async def submit(self, request: TaskRequest) -> Response:
        status = await self.service.aio.submit_request(request)
        return self.status(status, 201 if status.created else 200)

    def status(self, status: TaskStatus, code: int = 200) -> Response:
        return json_response(self.records.status(self.access, status), code)


async def _call(request: Request) -> Call:
    return Call(access=request.state.access, **request.app.state.parts)


def parts_of(app: Backburner) -> dict[str, Any]:
    """Return the fields of `Call` that all calls share."""
    records = TaskRecords(app)
    return {"app": app, "records": records, "streams": Streams(app, records), "blocking": Blocking(app)}


Context = Annotated[Call, Depends(_call)]
TaskId = Annotated[str, Path(min_length=1)]
LastEventId = Annotated[str | None, Header(alias="Last-Event-ID")]


class _EventStream(Response):
    media_type = "text/event-stream"


tasks = APIRouter(route_class=CheckedRoute, tags=["Tasks"])
server = APIRouter(route_class=CheckedRoute, tags=["Server"])

# -- tasks -----------------------------------------------------------------------------------------


@tasks.get("/tasks", response_model=m.TaskList, responses=problems(409))
async def list_tasks(call: Context, query: Annotated[m.TaskListQuery, Query()]) -> Response:
    return await call.read(lambda: call.records.tasks(call.access, **query.filters()))


@tasks.post(
    "/tasks",
    response_model=m.TaskWithInputs,
    status_code=201,
    responses={200: {"model": m.TaskWithInputs}, **problems(409, 413, 415, 429)},
)
async def submit_task(call: Context, body: m.Submission) -> Response:
    call.access.require_operate()

    def request() -> TaskRequest:
        return TaskRequest(
            body.tool,
            body.inputs,
            owner=call.access.principal,
            caller=call.access.caller,
            parent_id=body.parent,
            resources=Resources(max_runtime_s=body.max_runtime_s),
            **body.model_dump(exclude={"tool", "inputs", "parent", "max_runtime_s"}),
        )

    return await call.submit(await call.blocking.run(request))


@tasks.post("/tasks/actions", response_model=m.BulkResult, responses=problems(409, 413, 415))
async def act_on_tasks(call: Context, body: m.BulkAction) -> Response:
    """Cancel, retry or delete all tasks that match a filter."""
    call.access.require_operate()

    def act() -> dict[str, Any]:
        filters = body.filter.filters()
        owner = call.owner(filters.pop("owner"))
        return call.operator.act(body.action, owner, filters, dry_run=body.dry_run, limit=body.limit)

    return await call.read(act)


@tasks.get("/events", response_class=_EventStream, responses=problems())
async def follow_events(
    call: Context, query: Annotated[m.EventsQuery, Query()], last_event_id: LastEventId = None
) -> Response:
    """Stream the events of all visible tasks."""
    return await call.streams.events(call.access, last_event_id or query.after)


@tasks.get("/tasks/{task_id}", response_model=m.WholeTask, responses=problems(404))
async def get_task(call: Context, task_id: TaskId) -> Response:
    return await call.read(lambda: call.records.task(call.access, task_id))


@tasks.delete("/tasks/{task_id}", status_code=204, responses=problems(404, 409, 413, 415))
async def delete_task(call: Context, task_id: TaskId) -> Response:
    """Delete a finished task and its artifacts."""
    await call.change(call.service.delete, task_id)
    return Response(status_code=204, headers=dict(SAFE_HEADERS))


@tasks.get("/tasks/{task_id}/result", response_model=m.Result, responses=problems(404, 409))
async def get_result(call: Context, task_id: TaskId) -> Response:
    return await call.read(lambda: call.records.result(call.access, task_id))


@tasks.get("/tasks/{task_id}/logs", response_model=m.LogPage, responses=problems(404))
async def get_log(call: Context, task_id: TaskId, query: Annotated[m.LogQuery, Query()]) -> Response:
    return await call.read(lambda: call.records.logs(call.access, task_id, **query.model_dump()))


@tasks.get("/tasks/{task_id}/logs/stream", response_class=_EventStream, responses=problems(404))
async def follow_log(
    call: Context,
    task_id: TaskId,
    query: Annotated[m.LogStreamQuery, Query()],
    last_event_id: LastEventId = None,
) -> Response:
    """Stream the log and status of a task until it ends."""
    return await call.streams.log(call.access, task_id, query.after, last_event_id)


@tasks.get("/tasks/{task_id}/artifacts", response_model=m.Artifacts, responses=problems(404))
async def list_artifacts(call: Context, task_id: TaskId) -> Response:
    return await call.read(lambda: call.records.artifacts(call.access, task_id))


@tasks.post("/tasks/{task_id}/cancel", response_model=m.TaskWithInputs, responses=problems(404, 413, 415))
async def cancel_task(call: Context, task_id: TaskId, body: m.Cancellation) -> Response:
    return call.status(await call.change(call.service.cancel, task_id, reason=body.reason))


@tasks.post(
    "/tasks/{task_id}/retry",
    response_model=m.TaskWithInputs,
    responses={201: {"model": m.TaskWithInputs}, **problems(404, 409, 413, 415, 429)},
)
async def retry_task(call: Context, task_id: TaskId, body: m.Retry) -> Response:
    """Run a task again; with other inputs, as a new task."""
    if body.inputs is None:
        return call.status(await call.change(call.service.retry, task_id))
    return await call.submit(await call.change(call.service.request_again, task_id, body.inputs))


@tasks.post("/tasks/{task_id}/answers", response_model=m.TaskWithInputs, responses=problems(404, 413, 415))
async def answer_task(call: Context, task_id: TaskId, body: m.Answers) -> Response:
    answers = {key: one.model_dump(exclude_unset=True) for key, one in body.answers.items()}
    return call.status(await call.change(call.service.answer_input, task_id, answers))


# -- the server ------------------------------------------------------------------------------------

Owner = Annotated[m.OwnerQuery, Query()]


@server.get("/me", response_model=m.Me, responses=problems())
async def get_me(call: Context) -> Response:
    """Return the token's owner and role."""
    access = call.access
    values = {"owner": access.principal, "role": str(access.role), "steers_queues": access.steers_queues}
    return json_response(values)


@server.get("/overview", response_model=m.Overview, responses=problems(409))
async def get_overview(call: Context, query: Owner) -> Response:
    """Return states, queues, workers and the statistics of the last hour."""
    hosts = call.access.is_operator
    return await call.read(lambda: call.operator.overview(call.owner(query.owner), hosts=hosts))


@server.get("/statistics", response_model=m.Statistics, responses=problems(409))
async def get_statistics(call: Context, query: Annotated[m.StatisticsQuery, Query()]) -> Response:
    """Return completions over time."""
    return await call.read(
        lambda: call.operator.statistics(
            call.owner(query.owner),
            since=m.in_ms(query.since),
            until=m.in_ms(query.until),
            every_s=query.every_s,
            tool_name=query.tool,
            queue=query.queue,
        )
    )


@server.get("/states", response_model=m.States, responses=problems(409))
async def count_states(call: Context, query: Owner) -> Response:
    """Return the number of tasks in each state."""
    return await call.read(lambda: {"states": call.operator.states(call.owner(query.owner))})


@server.get("/runtimes", response_model=m.list_of("tools", m.Runtimes), responses=problems(409))
async def list_runtimes(call: Context, query: Owner) -> Response:
    """Return durations of each tool's latest successful runs."""
    return await call.read(lambda: {"tools": call.operator.runtimes(call.owner(query.owner))})


_QUEUES = m.list_of("queues", m.Queue)


@server.get("/queues", response_model=_QUEUES, responses=problems())
async def list_queues(call: Context) -> Response:
    return await call.read(lambda: {"queues": call.operator.queues()})


@server.post("/queues/{queue}/pause", response_model=_QUEUES, responses=problems(413, 415))
async def pause_queue(call: Context, queue: TaskId) -> Response:
    """Start no more tasks of a queue until it is resumed. Running tasks continue."""
    call.access.require_operate_all("pause or resume queues")
    await call.blocking.run(call.operator.pause, queue, by=call.access.principal)
    return await list_queues(call)


@server.post("/queues/{queue}/resume", response_model=_QUEUES, responses=problems(413, 415))
async def resume_queue(call: Context, queue: TaskId) -> Response:
    call.access.require_operate_all("pause or resume queues")
    await call.blocking.run(call.operator.resume, queue)
    return await list_queues(call)


@server.get("/workers", response_model=m.list_of("workers", m.Worker), responses=problems())
async def list_workers(call: Context) -> Response:
    access = call.access
    return await call.read(lambda: {"workers": call.operator.workers(access.owner, hosts=access.is_operator)})


@server.get("/supervisor", response_model=m.Supervisor, responses=problems())
async def get_supervisor(call: Context) -> Response:
    return await call.read(lambda: call.operator.supervisor(hosts=call.access.is_operator))


@server.get("/clients", response_model=m.list_of("clients", m.Client), responses=problems())
async def list_clients(call: Context) -> Response:
    """List clients that timed out on a call, with the time limits known or learned for each."""
    return await call.read(lambda: {"clients": call.operator.clients()})


@server.delete("/clients", response_model=m.Forgotten, responses=problems(413, 415))
async def forget_clients(call: Context, query: Annotated[m.ClientQuery, Query()]) -> Response:
    """Delete learned timeouts of one client or of all."""
    call.access.require_operate_all("forget clients")
    return await call.read(lambda: {"forgotten": call.operator.forget_clients(query.name)})


@server.get("/webhooks", response_model=m.list_of("deliveries", m.Delivery), responses=problems(409))
async def list_webhooks(call: Context, query: Owner) -> Response:
    """List pending and failed webhook deliveries."""
    return await call.read(lambda: {"deliveries": call.operator.webhooks(call.owner(query.owner))})


@server.post("/webhooks/{webhook_id}/retry", response_model=m.WebhookRetry, responses=problems(413, 415))
async def retry_webhook(call: Context, webhook_id: TaskId) -> Response:
    call.access.require_operate()
    owner = call.access.owner
    return await call.read(
        lambda: {"webhook_id": webhook_id, "retried": call.operator.retry_webhook(webhook_id, owner)}
    )


@server.get("/tools", response_model=m.list_of("tools", m.Tool), responses=problems())
async def list_tools(call: Context) -> Response:
    return await call.read(lambda: {"tools": call.operator.tools()})


@server.get("/openapi.json", response_model=m.Output, responses=problems())
async def get_open_api(request: Request) -> Response:
    """Return this document."""
    return json_response(openapi(request.app))


def routes(app: Backburner, *, tokens: bool) -> list[BaseRoute]:
    """Return routes for the server's HTTP app. With `tokens`, every request needs one."""
    max_bytes = app.settings.limits.max_input_bytes + _BESIDE_INPUTS
    api = new_api(PATH, [tasks, server], tokens=tokens, max_bytes=max_bytes)
    api.state.parts = parts_of(app)
    endpoint = below(PATH, api)
    return [Route(f"{PATH}/{{rest:path}}", endpoint=endpoint), Route(PATH, endpoint=endpoint)]
