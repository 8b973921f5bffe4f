"""Reading, for whatever is served beside MCP: plain JSON values of what somebody may see. Blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ..app import Backburner
from ..client_time_outs import ClientTimeOut
from ..config import Settings
from ..errors import ArtifactNotFound
from ..health import supervision_of
from ..mcp.links import Links
from ..mcp.outcomes import error_for_clients
from ..mcp.patience import by_client, limits, transport_of
from ..mcp.showing import Client
from ..records import (
    contents_of,
    delivery_record,
    queue_records,
    record,
    result_record,
    state_record,
    status_record,
    supervisor_record,
    tool_record,
    worker_records,
)
from ..result_parts import large_result
from ..runtimes import runtimes
from ..service import LogPage, TaskStatus
from ..short_names import whole_id
from ..store import Store
from ..task import Artifact, Attempt, InputRequest, LogLine, Task
from ..task_request import log_cursor
from ..times import iso
from .access import Access
from .spans import statistics

#: So many characters of a log at a time, so that one line of 50 MB is read in parts as well.
LOG_CHARS = 1 << 20
#: So many lines are read first, and then four times as many each time.
_FIRST_LINES = 64
_OF_SERVER = ("target", "caller", "meta")
#: All that somebody is told of workers and supervisors who may not know of hosts and processes.
_OF_WORKER = ("worker_id", "queue", "state", "alive", "current_task_id")
_OF_SUPERVISOR = ("state", "trouble")

_Ended = TypeVar("_Ended", Task, Attempt)


class Reading:
    """What there is in an app's store, for who asks. Raises what the TaskService raises."""

    def __init__(self, app: Backburner) -> None:
        self._app = app

    # -- tasks

    def tasks(self, access: Access, *, owner: str | None = None, **filters: Any) -> dict[str, Any]:
        """A page of tasks, by the filters of `TaskService.list`."""
        service = self._app.service
        page = service.list(owner=access.chosen_owner(owner, service.store), **filters)
        found = [_shown(access, service.view(task)) for task in page.tasks]
        cursors = {"next_cursor": page.next_cursor, "previous_cursor": page.previous_cursor}
        return {"tasks": found, **cursors}

    def whole_id(self, access: Access, beginning: str) -> str:
        """The id of the one task that begins so. Raises TaskNotFound and AmbiguousTask."""
        return whole_id(self._app.store, beginning, access.owner)

    def task(self, access: Access, task_id: str) -> dict[str, Any]:
        """All about a task, but for its log and its files."""
        status = self._app.service.status(task_id, owner=access.owner)
        return {**self.status(access, status), **self._history(access, status.task)}

    def status(self, access: Access, status: TaskStatus) -> dict[str, Any]:
        """A task, with its inputs."""
        inputs = self.shown_inputs(status.task)
        return {**_shown(access, status), "inputs": inputs, "created": status.created}

    def _history(self, access: Access, task: Task) -> dict[str, Any]:
        store = self._app.store
        asked = store.input_requests(task.task_id)
        attempts = [_with_shown_error(access, task, one) for one in store.attempts(task.task_id)]
        return {
            "attempts": record(attempts),
            "events": record(store.events(task.task_id)),
            "all_questions": [_question(one) for one in asked],
        }

    def shown_inputs(self, task: Task) -> dict[str, Any] | None:
        """The inputs with secrets hidden; None where the tool, which says what is secret, is not known."""
        if not task.inputs:
            return task.inputs
        if task.tool_name not in self._app.tools:
            return None
        return self._app.tools.get(task.tool_name).masked(task.inputs)

    def result(self, access: Access, task_id: str) -> dict[str, Any]:
        outcome = self._app.service.result(task_id, owner=access.owner)
        outcome = replace(outcome, task=_with_shown_error(access, outcome.task, outcome.task))
        shown = result_record(outcome, self._app.artifacts)
        return {**shown, "artifacts": self._files(outcome.task, outcome.artifacts)}

    def kept_result(self, access: Access, task_id: str) -> dict[str, Any]:
        """What the store itself has of a result: of one that was too large, what stands for it."""
        outcome = self._app.service.result(task_id, owner=access.owner)
        is_whole = large_result(outcome.task, outcome.artifacts) is None
        value = contents_of(outcome.task, outcome.task.result) if is_whole else outcome.task.result
        return {"result": value, "is_whole": is_whole}

    def artifacts(self, access: Access, task_id: str) -> dict[str, Any]:
        """The files that a task made, each with a link that works for a while."""
        task = self._app.service.status(task_id, owner=access.owner).task
        return {"task_id": task_id, "artifacts": self._files(task, self._app.store.artifacts(task_id))}

    def artifact_link(self, access: Access, task_id: str, artifact_id: str, *, own: bool) -> str:
        """Where a file of a task can be had for a while; `own`: from this server, as a path.

        Raises TaskNotFound and ArtifactNotFound.
        """
        task = self._app.service.status(task_id, owner=access.owner).task
        artifact = next(
            (one for one in self._app.store.artifacts(task_id) if one.artifact_id == artifact_id), None
        )
        if artifact is None:
            raise ArtifactNotFound(artifact_id=artifact_id)
        app, http = self._app, self._app.settings.http
        here = Links(app.store, "http://here", http.artifact_link_s)
        elsewhere = None if own else Links(app.store, "http://here", http.artifact_link_s, app.artifacts.link)
        link = (elsewhere or here).to(artifact, task.expires_at)
        assert link is not None, "it has an address"
        return link.url.removeprefix("http://here")

    def _files(self, task: Task, artifacts: Sequence[Artifact]) -> list[dict[str, Any]]:
        app, http = self._app, self._app.settings.http
        links = Links(app.store, http.public_url, http.artifact_link_s, app.artifacts.link)
        linked = links.shown(task, artifacts)["artifacts"]
        return [{**record(one), **link} for one, link in zip(artifacts, linked, strict=True)]

    def logs(
        self, access: Access, task_id: str, *, after: int = 0, offset: int = 0, limit: int = 200
    ) -> dict[str, Any]:
        """Lines after a number, and so many at most. `offset` is how much of the first was read before."""
        page = self._log_page(access, task_id, after, max(1, limit))
        lines: list[dict[str, Any]] = []
        left, next_after, next_offset = LOG_CHARS, after, 0
        for line in page.lines:
            text = line.message[offset:]
            shown = {**record(line), "message": text[:left], "offset": offset, "length": len(line.message)}
            if len(text) > left:
                if left:
                    lines.append(shown)
                next_offset = offset + left
                break
            lines.append(shown)
            left -= len(text)
            next_after, offset = line.seq, 0
        more = page.truncated or bool(page.lines and page.lines[-1].seq > next_after)
        return {
            "task_id": task_id,
            "lines": lines,
            "next_after": next_after,
            "next_offset": next_offset,
            "more": more,
        }

    def last_line(self, access: Access, task_id: str) -> int:
        """The number of the last line of its log so far."""
        return self._app.store.last_log_seq(self._app.service.head(task_id, owner=access.owner).task_id)

    def _log_page(self, access: Access, task_id: str, after: int, limit: int) -> LogPage:
        """So many lines, or as many as are enough for an answer: long ones are not read in vain."""
        lines: list[LogLine] = []
        cursor, count, chars = log_cursor(after), _FIRST_LINES, 0
        while True:
            count = min(count, limit - len(lines))
            page = self._app.service.logs(
                task_id, owner=access.owner, cursor=cursor, limit=count, operator=access.is_operator
            )
            lines += page.lines
            chars += sum(len(line.message) for line in page.lines)
            if not page.truncated or len(lines) == limit or chars > LOG_CHARS:
                return LogPage(lines, page.next_cursor, page.truncated)
            cursor, count = page.next_cursor, count * 4

    # -- the server

    def overview(self, access: Access, *, last_s: float = 3600, stretches: int = 60) -> dict[str, Any]:
        """What somebody sees first: states, queues, workers, and the last hour."""
        every_ms = max(1000, int(last_s * 1000 / stretches))
        until = self._app.store.now_ms() + 1
        since = until - stretches * every_ms
        return {
            **self.states(access),
            "queues": self.queues()["queues"],
            "workers": self.workers(access)["workers"],
            "statistics": self.statistics(access, since=since, until=until, every_s=every_ms / 1000),
        }

    def statistics(
        self,
        access: Access,
        *,
        since: int | None = None,
        until: int | None = None,
        every_s: float = 60,
        owner: str | None = None,
        tool_name: str | None = None,
        queue: str | None = None,
    ) -> dict[str, Any]:
        """What ended over a time, in stretches; the last hour if it is not said."""
        store = self._app.store
        end = store.now_ms() + 1 if until is None else until
        begin = end - 3_600_000 if since is None else since
        chosen = access.chosen_owner(owner, store)
        return statistics(
            store, begin, end, int(every_s * 1000), owner=chosen, tool_name=tool_name, queue=queue
        )

    def queues(self) -> dict[str, Any]:
        """The queues are everyone's, and so is how long they are."""
        app = self._app
        live = supervision_of(app.store, app.settings, app.data_dir).live
        return {"queues": queue_records(app.store, app.settings, live)}

    def workers(self, access: Access) -> dict[str, Any]:
        """All workers. Which task one has, only who sees that task is told; where it is, who sees all."""
        app, store = self._app, self._app.store
        found = worker_records(store, supervision_of(store, app.settings, app.data_dir).live)
        heads = store.heads([one["current_task_id"] for one in found if one["current_task_id"]])
        seen = {task_id for task_id, head in heads.items() if access.owner in (None, head.owner)}
        for one in found:
            if one["current_task_id"] not in seen:
                one["current_task_id"] = None
        return {"workers": [_told(access, one, _OF_WORKER) for one in found]}

    def supervisor(self, access: Access) -> dict[str, Any]:
        """How the supervisor of the server's host is."""
        app = self._app
        found = supervision_of(app.store, app.settings, app.data_dir)
        return _told(access, supervisor_record(found), _OF_SUPERVISOR)

    def states(self, access: Access, *, owner: str | None = None) -> dict[str, Any]:
        """How many tasks there are in each state."""
        store = self._app.store
        return {"states": state_record(store.count_states(access.chosen_owner(owner, store)))}

    def runtimes(self, access: Access, *, owner: str | None = None) -> dict[str, Any]:
        """How long the tools take of which somebody sees tasks."""
        service = self._app.service
        return {"tools": runtimes(service, access.chosen_owner(owner, service.store))}

    def webhooks(self, access: Access, *, owner: str | None = None) -> dict[str, Any]:
        """What endpoints were not told yet, and what was given up."""
        store = self._app.store
        found = store.deliveries(access.chosen_owner(owner, store))
        return {"deliveries": [delivery_record(one) for one in found]}

    def clients(self) -> dict[str, Any]:
        return {"clients": client_records(self._app.store, self._app.settings)}

    def tools(self) -> dict[str, Any]:
        return {"tools": [tool_record(spec, self._app.settings) for spec in self._app.tools]}


def _with_shown_error(access: Access, task: Task, one: _Ended) -> _Ended:
    """A task, or an attempt at it, without what its server hides from clients, unless for an operator."""
    return one if access.is_operator else replace(one, error=error_for_clients(task, one.error))


def _shown(access: Access, status: TaskStatus) -> dict[str, Any]:
    """A task without what is the server's own: where the app is, and what it kept of the request."""
    status = replace(status, task=_with_shown_error(access, status.task, status.task))
    return {name: value for name, value in status_record(status).items() if name not in _OF_SERVER}


def _told(access: Access, whole: dict[str, Any], everyone: Sequence[str]) -> dict[str, Any]:
    """What is known of a machine, for who asks: for most, only what `everyone` is told."""
    if access.is_operator:
        return whole
    return {name: value if name in everyone else None for name, value in whole.items()}


def _question(asked: InputRequest) -> dict[str, Any]:
    return {
        "key": asked.key,
        "attempt": asked.attempt,
        "message": asked.params.get("message"),
        "schema": asked.params.get("requestedSchema"),
        "asked_at": iso(asked.asked_at),
        "answered_at": iso(asked.answered_at),
        "action": asked.action,
    }


# -- clients ---------------------------------------------------------------------------------------


def client_records(store: Store, settings: Settings) -> list[dict[str, Any]]:
    """Each client that gave a held call up: its clocks, from where they are known, and what it taught."""
    return [
        _client(client, settings, seen, store.now_ms())
        for client, seen in by_client(store.time_outs()).items()
    ]


def _client(client: Client, settings: Settings, seen: list[ClientTimeOut], now_ms: int) -> dict[str, Any]:
    found = limits(client, settings, seen, now_ms)
    return {
        "name": client.name,
        "version": client.version,
        "transport": transport_of(client),
        "wall_s": found.clocks.wall_s,
        "idle_s": found.clocks.idle_s,
        "restarts": found.clocks.restarts,
        "held_s": found.hold_s(with_progress=False),
        "source": found.source,
        "time_outs": len(seen),
        "gave_up_after_s": min(one.waited_ms for one in seen) / 1000,
        "last_seen_at": iso(seen[-1].seen_at),
    }
