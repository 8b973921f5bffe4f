"""All operations of the API, and what each does. The list at the end is also the OpenAPI document."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, ParamSpec

from starlette.responses import Response

from ...app import Backburner
from ...service import TaskStatus
from ...task import Resources
from ...task_request import TaskRequest
from ..blocking import Blocking
from ..reading import Reading
from ..steering import Steering
from . import models, server_models
from .openapi import document
from .operation import Answer, Asked, Operation, as_json
from .streams import Streams

P = ParamSpec("P")


class Operations:
    """The operations on one app, at `base`."""

    def __init__(self, app: Backburner, base: str, *, tokens: bool) -> None:
        self._app, self._base, self._tokens = app, base, tokens
        self._reading, self._steering = Reading(app), Steering(app)
        self._streams = Streams(app, self._reading)
        self._blocking = Blocking(app).run

    async def _shown(self, function: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> Response:
        """The same for what is shown as it is."""
        return await self._blocking(lambda: as_json(function(*args, **kwargs)))

    # -- tasks

    async def list_tasks(self, asked: Asked) -> Answer:
        query: models.ListTasks = asked.query
        page = {"oldest_first": query.sort == "oldest", "limit": query.limit, "cursor": query.cursor}
        return await self._shown(self._reading.tasks, asked.access, **{**query.chosen(), **page})

    async def submit(self, asked: Asked) -> Answer:
        body: models.Submit = asked.body
        options = body.model_dump(include={"queue", "priority", "ttl_s", "tags", "idempotency_key"})
        own = {"parent_id": body.parent, "resources": Resources(max_runtime_s=body.max_runtime_s)}
        make = partial(self._steering.request, asked.access, body.tool, body.inputs, **own)
        return await self._submitted(asked, await self._blocking(make, **options))

    async def _submitted(self, asked: Asked, request: TaskRequest) -> Answer:
        status = await self._app.service.aio.submit_request(request)
        return (201 if status.created else 200), self._status(asked, status)

    async def act(self, asked: Asked) -> Answer:
        body: models.Bulk = asked.body
        act = partial(self._steering.act, dry_run=body.dry_run, limit=body.limit)
        return await self._blocking(act, asked.access, body.action, body.filter.chosen())

    async def get_task(self, asked: Asked) -> Answer:
        return await self._shown(self._reading.task, asked.access, asked.path["task_id"])

    async def delete_task(self, asked: Asked) -> Answer:
        await self._blocking(self._steering.delete, asked.access, asked.path["task_id"])
        return None

    async def get_result(self, asked: Asked) -> Answer:
        return await self._shown(self._reading.result, asked.access, asked.path["task_id"])

    async def get_log(self, asked: Asked) -> Answer:
        query: models.ReadLog = asked.query
        return await self._shown(
            self._reading.logs, asked.access, asked.path["task_id"], **query.model_dump()
        )

    async def list_artifacts(self, asked: Asked) -> Answer:
        return await self._shown(self._reading.artifacts, asked.access, asked.path["task_id"])

    async def cancel_task(self, asked: Asked) -> Answer:
        reason = asked.body.reason
        return self._status(
            asked, await self._blocking(self._steering.cancel, asked.access, asked.path["task_id"], reason)
        )

    async def retry_task(self, asked: Asked) -> Answer:
        """The same task once more; with other inputs, a new one."""
        task_id, inputs = asked.path["task_id"], asked.body.inputs
        if inputs is None:
            return self._status(asked, await self._blocking(self._steering.retry, asked.access, task_id))
        request = await self._blocking(self._steering.request_again, asked.access, task_id, inputs)
        return await self._submitted(asked, request)

    async def answer_task(self, asked: Asked) -> Answer:
        body: models.Answers = asked.body
        answers = {key: one.model_dump(exclude_unset=True) for key, one in body.answers.items()}
        return self._status(
            asked, await self._blocking(self._steering.answer, asked.access, asked.path["task_id"], answers)
        )

    def _status(self, asked: Asked, status: TaskStatus) -> dict[str, Any]:
        return self._reading.status(asked.access, status)

    # -- the server

    async def list_queues(self, asked: Asked) -> Answer:
        return await self._shown(self._reading.queues)

    async def pause_queue(self, asked: Asked) -> Answer:
        await self._blocking(self._steering.pause, asked.access, asked.path["queue"])
        return await self._shown(self._reading.queues)

    async def resume_queue(self, asked: Asked) -> Answer:
        await self._blocking(self._steering.resume, asked.access, asked.path["queue"])
        return await self._shown(self._reading.queues)

    async def list_workers(self, asked: Asked) -> Answer:
        return await self._shown(self._reading.workers, asked.access)

    async def get_supervisor(self, asked: Asked) -> Answer:
        return await self._shown(self._reading.supervisor, asked.access)

    async def count_states(self, asked: Asked) -> Answer:
        return await self._shown(self._reading.states, asked.access, owner=asked.query.owner)

    async def list_runtimes(self, asked: Asked) -> Answer:
        return await self._shown(self._reading.runtimes, asked.access, owner=asked.query.owner)

    async def list_webhooks(self, asked: Asked) -> Answer:
        return await self._shown(self._reading.webhooks, asked.access, owner=asked.query.owner)

    async def retry_webhook(self, asked: Asked) -> Answer:
        return await self._blocking(self._steering.retry_webhook, asked.access, asked.path["webhook_id"])

    async def forget_clients(self, asked: Asked) -> Answer:
        return await self._blocking(self._steering.forget_clients, asked.access, asked.query.name)

    async def list_clients(self, asked: Asked) -> Answer:
        return await self._shown(self._reading.clients)

    async def list_tools(self, asked: Asked) -> Answer:
        return await self._shown(self._reading.tools)

    async def get_overview(self, asked: Asked) -> Answer:
        return await self._shown(self._reading.overview, asked.access)

    async def get_statistics(self, asked: Asked) -> Answer:
        query: server_models.AskStatistics = asked.query
        return await self._shown(
            self._reading.statistics,
            asked.access,
            since=models.in_ms(query.since),
            until=models.in_ms(query.until),
            every_s=query.every_s,
            owner=query.owner,
            tool_name=query.tool,
            queue=query.queue,
        )

    async def get_me(self, asked: Asked) -> Answer:
        access = asked.access
        return {
            "owner": access.principal,
            "role": str(access.role),
            "steers_queues": access.steers_queues,
        }

    async def get_document(self, asked: Asked) -> Answer:
        return self._document

    @cached_property
    def _document(self) -> dict[str, Any]:
        return document(self.all, self._base, tokens=self._tokens)

    # -- the list

    @cached_property
    def all(self) -> list[Operation]:
        return [*self._of_tasks(), *self._of_one_task(), *self._of_server()]

    def _of_tasks(self) -> list[Operation]:
        m = models
        return [
            Operation(
                *("GET", "/tasks", "listTasks", "List tasks", self.list_tasks),
                answer=m.TaskList,
                query=m.ListTasks,
                refused=[409],
            ),
            Operation(
                *("POST", "/tasks", "submitTask", "Submit a task", self.submit),
                answer=m.TaskWithInputs,
                body=m.Submit,
                status=201,
                also=[200],
                refused=[409, 429],
            ),
            Operation(
                *("POST", "/tasks/actions", "actOnTasks", "Act on all that a filter chooses", self.act),
                answer=m.Acted,
                body=m.Bulk,
                refused=[409],
            ),
            Operation(
                *("GET", "/events", "followEvents", "Follow what happens", self._streams.events),
                query=m.FollowEvents,
                streams=True,
            ),
        ]

    def _of_one_task(self) -> list[Operation]:
        m, at = models, "/tasks/{task_id}"
        return [
            Operation("GET", at, "getTask", "All about a task", self.get_task, m.WholeTask, refused=[404]),
            Operation(
                *("DELETE", at, "deleteTask", "Forget a finished task", self.delete_task),
                status=204,
                refused=[404, 409],
            ),
            Operation(
                *("GET", f"{at}/result", "getResult", "The outcome of a finished task", self.get_result),
                answer=m.Result,
                refused=[404, 409],
            ),
            Operation(
                *("GET", f"{at}/logs", "getLog", "A part of its log", self.get_log),
                answer=m.LogPage,
                query=m.ReadLog,
                refused=[404],
            ),
            Operation(
                *("GET", f"{at}/logs/stream", "followLog", "Follow its log", self._streams.log),
                query=m.FollowLog,
                streams=True,
                refused=[404],
            ),
            Operation(
                *("GET", f"{at}/artifacts", "listArtifacts", "The files it made", self.list_artifacts),
                answer=m.Artifacts,
                refused=[404],
            ),
            Operation(
                *("POST", f"{at}/cancel", "cancelTask", "Ask for it to be stopped", self.cancel_task),
                answer=m.TaskWithInputs,
                body=m.Cancel,
                refused=[404],
            ),
            Operation(
                *("POST", f"{at}/retry", "retryTask", "Run it once more", self.retry_task),
                answer=m.TaskWithInputs,
                body=m.Retry,
                also=[201],
                refused=[404, 409, 429],
            ),
            Operation(
                *("POST", f"{at}/answers", "answerTask", "Answer its questions", self.answer_task),
                answer=m.TaskWithInputs,
                body=m.Answers,
                refused=[404],
            ),
        ]

    def _of_server(self) -> list[Operation]:
        m = server_models
        server = partial(Operation, group="Server")
        ask = partial(
            server, "GET", "/statistics", "getStatistics", "What ended over a time", self.get_statistics
        )
        count = partial(server, "GET", "/states", "countStates", "Tasks by state", self.count_states)
        time = partial(server, "GET", "/runtimes", "listRuntimes", "How long tools take", self.list_runtimes)
        return [
            server("GET", "/me", "getMe", "Who asks, and with which role", self.get_me, m.Me),
            server("GET", "/overview", "getOverview", "The last hour", self.get_overview, m.Overview),
            ask(m.Statistics, query=m.AskStatistics, refused=[409]),
            count(m.States, query=m.OfOwner, refused=[409]),
            time(m.AllRuntimes, query=m.OfOwner, refused=[409]),
            server("GET", "/queues", "listQueues", "The queues", self.list_queues, m.Queues),
            server(
                *("POST", "/queues/{queue}/pause", "pauseQueue", "Let none of its tasks begin"),
                *(self.pause_queue, m.Queues),
            ),
            server(
                *("POST", "/queues/{queue}/resume", "resumeQueue", "Let them begin again"),
                *(self.resume_queue, m.Queues),
            ),
            server("GET", "/workers", "listWorkers", "The workers", self.list_workers, m.Workers),
            server("GET", "/supervisor", "getSupervisor", "Who runs them", self.get_supervisor, m.Supervisor),
            server("GET", "/clients", "listClients", "Clients' patience", self.list_clients, m.Clients),
            server(
                *("DELETE", "/clients", "forgetClients", "Forget what was learned of them"),
                *(self.forget_clients, m.Forgotten),
                query=m.ForgetClients,
            ),
            server(
                *("GET", "/webhooks", "listWebhooks", "Whom an end could not be told to yet"),
                *(self.list_webhooks, m.Deliveries),
                query=m.OfOwner,
                refused=[409],
            ),
            server(
                *("POST", "/webhooks/{webhook_id}/retry", "retryWebhook", "Send it again"),
                *(self.retry_webhook, m.Retried),
            ),
            server("GET", "/tools", "listTools", "The tools, with schemas", self.list_tools, m.Tools),
            server("GET", "/openapi.json", "getOpenApi", "This document", self.get_document, models.Shown),
        ]
