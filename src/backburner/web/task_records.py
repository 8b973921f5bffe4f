"""Tasks as JSON for one principal: secrets masked, hidden errors removed, signed artifact links. Blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from msgspec import structs

from ..app import Backburner
from ..core.requests import log_cursor
from ..core.task import Artifact, Attempt, InputRequest, LogLine, Task
from ..core.times import iso
from ..errors import ArtifactNotFound
from ..mcp.results import ArtifactLinks, error_for_clients
from ..service.names import whole_id
from ..service.records import contents_of, masked_inputs, record, result_record, status_record
from ..service.tasks import LogPage, TaskService, TaskStatus
from ..tools.results import large_result
from .access import Access

#: Characters of a log in one response, so that a single line of 50 MB is also read in parts.
MAX_LOG_CHARS = 1 << 20
#: Lines in the first read of a log page; each further read takes four times as many.
_FIRST_LINES = 64
_SERVER_FIELDS = ("target", "caller", "meta")

_WithError = TypeVar("_WithError", Task, Attempt)


class TaskRecords:
    """Reads tasks for API and dashboard. Raises the errors of TaskService."""

    def __init__(self, app: Backburner) -> None:
        self._app = app

    @property
    def _service(self) -> TaskService:
        return self._app.service  # opens the store on first use

    def whole_id(self, access: Access, beginning: str) -> str:
        """Complete a task id. Raises TaskNotFound and AmbiguousTask."""
        return whole_id(self._service, beginning, access.owner)

    def tasks(self, access: Access, *, owner: str | None = None, **filters: Any) -> dict[str, Any]:
        """Return a page of tasks, by the filters of `TaskService.list`."""
        service = self._service
        page = service.list(owner=access.selected_owner(owner, service.store), **filters)
        found = [_visible(access, service.view(task)) for task in page.tasks]
        return {"tasks": found, "next_cursor": page.next_cursor, "previous_cursor": page.previous_cursor}

    def status(self, access: Access, status: TaskStatus) -> dict[str, Any]:
        inputs = masked_inputs(status.task, self._app.tools)
        return {**_visible(access, status), "inputs": inputs, "created": status.created}

    def task(self, access: Access, task_id: str) -> dict[str, Any]:
        """Return a task with its attempts, events and questions."""
        status = self._service.status(task_id, owner=access.owner)
        history = self._service.history(task_id, owner=access.owner)
        return {
            **self.status(access, status),
            "attempts": record([_visible_error(access, status.task, one) for one in history.attempts]),
            "events": record(history.events),
            "all_questions": [_question(one) for one in history.questions],
        }

    def result(self, access: Access, task_id: str) -> dict[str, Any]:
        outcome = self._service.result(task_id, owner=access.owner)
        outcome = replace(outcome, task=_visible_error(access, outcome.task, outcome.task))
        shown = result_record(outcome, self._app.artifacts)
        return {**shown, "artifacts": self._linked(outcome.task, outcome.artifacts)}

    def stored_result(self, access: Access, task_id: str) -> dict[str, Any]:
        """Return the result as stored: a preview, if the whole result is an artifact."""
        outcome = self._service.result(task_id, owner=access.owner)
        is_whole = large_result(outcome.task, outcome.artifacts) is None
        value = contents_of(outcome.task, outcome.task.result) if is_whole else outcome.task.result
        return {"result": value, "is_whole": is_whole}

    def artifacts(self, access: Access, task_id: str) -> dict[str, Any]:
        """Return a task's artifacts, each with a signed link."""
        task = self._service.status(task_id, owner=access.owner).task
        return {"task_id": task_id, "artifacts": self._linked(task, self._app.store.artifacts(task_id))}

    def artifact_link(self, access: Access, task_id: str, artifact_id: str, *, own: bool) -> str:
        """Return a signed link to an artifact; with `own`, a path of this server.

        Raises TaskNotFound and ArtifactNotFound.
        """
        task = self._service.status(task_id, owner=access.owner).task
        artifacts = {one.artifact_id: one for one in self._app.store.artifacts(task_id)}
        if artifact_id not in artifacts:
            raise ArtifactNotFound(artifact_id=artifact_id)
        storage_link = () if own else (self._app.artifacts.link,)
        links = ArtifactLinks(
            self._app.store, "http://here", self._app.settings.http.artifact_link_s, *storage_link
        )
        link = links.to(artifacts[artifact_id], task.expires_at)
        assert link is not None, "the base URL is set"
        return link.url.removeprefix("http://here")

    def _linked(self, task: Task, artifacts: Sequence[Artifact]) -> list[dict[str, Any]]:
        app, http = self._app, self._app.settings.http
        links = ArtifactLinks(app.store, http.public_url, http.artifact_link_s, app.artifacts.link)
        linked = links.shown(task, artifacts)["artifacts"]
        return [{**record(one), **link} for one, link in zip(artifacts, linked, strict=True)]

    # -- logs

    def logs(
        self, access: Access, task_id: str, *, after: int = 0, offset: int = 0, limit: int = 200
    ) -> dict[str, Any]:
        """Return up to `limit` lines after number `after`, the first from character `offset` on."""
        page = self._log_page(access, task_id, after, max(1, limit))
        lines: list[dict[str, Any]] = []
        left, next_after, next_offset = MAX_LOG_CHARS, after, 0
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
        """Return the number of the last log line."""
        return self._app.store.last_log_seq(self._service.head(task_id, owner=access.owner).task_id)

    def _log_page(self, access: Access, task_id: str, after: int, limit: int) -> LogPage:
        """Read up to `limit` lines, in growing steps, and stop once a response is full."""
        lines: list[LogLine] = []
        cursor, count, chars = log_cursor(after), _FIRST_LINES, 0
        while True:
            count = min(count, limit - len(lines))
            page = self._service.logs(
                task_id, owner=access.owner, cursor=cursor, limit=count, operator=access.is_operator
            )
            lines += page.lines
            chars += sum(len(line.message) for line in page.lines)
            if not page.truncated or len(lines) == limit or chars > MAX_LOG_CHARS:
                return LogPage(lines, page.next_cursor, page.truncated)
            cursor, count = page.next_cursor, count * 4


def _visible_error(access: Access, task: Task, one: _WithError) -> _WithError:
    return one if access.is_operator else structs.replace(one, error=error_for_clients(task, one.error))


def _visible(access: Access, status: TaskStatus) -> dict[str, Any]:
    status = replace(status, task=_visible_error(access, status.task, status.task))
    return {name: value for name, value in status_record(status).items() if name not in _SERVER_FIELDS}


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
