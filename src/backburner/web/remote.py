"""Tasks through the API of a server elsewhere, with the verbs of a TaskService: for the command line."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import httpx2
from pydantic import TypeAdapter

from ..client_errors import NotOffered
from ..errors import InvalidRequest
from ..estimate import EstimateSource, ExpectedRuntime
from ..service import LogPage, TaskResult, TaskStatus
from ..task import LOCAL_OWNER, Artifact, Attempt, Event, InputRequest, LogLine, Task
from ..task_pages import TaskPage
from ..task_request import TaskRequest, log_cursor, log_seq
from ..times import from_iso, iso
from .connection import Connection

_TASK, _ATTEMPTS, _EVENTS = TypeAdapter(Task), TypeAdapter(list[Attempt]), TypeAdapter(list[Event])
_LINES = TypeAdapter(list[LogLine])
_TIMES = ("ts", "last_heartbeat")
_LOOK_S = 0.5


class RemoteService:
    """What a TaskService does, for whoever the token stands for. Raises what the server says.

    The server knows whose tasks these are: an owner that is named here is only for who sees all.
    """

    def __init__(self, server: Connection) -> None:
        self._server = server
        self._views: dict[str, TaskStatus] = {}
        self.store = RemoteStore(self)
        self.changes = _Looking()

    def whole(self, task_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self._server.get(f"/tasks/{task_id}")
        return found

    def files(self, task_id: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._server.get(f"/tasks/{task_id}/artifacts")["artifacts"]
        return found

    # -- the verbs of a TaskService

    def submit_request(self, request: TaskRequest) -> TaskStatus:
        """Raises InvalidRequest where a task is to be another's: it belongs to the token's owner."""
        if request.owner != LOCAL_OWNER:
            raise InvalidRequest(reason="through a server, a task belongs to the owner of the token")
        body = {
            "tool": request.tool_name,
            "inputs": request.inputs,
            "queue": request.queue,
            "priority": request.priority,
            "ttl_s": request.ttl_s,
            "max_runtime_s": request.resources and request.resources.max_runtime_s,
            "tags": [*request.tags],
            "idempotency_key": request.idempotency_key,
            "parent": request.parent_id,
        }
        return _status(self._server.post("/tasks", {k: v for k, v in body.items() if v is not None}))

    def list(
        self,
        *,
        owner: str | None = None,
        states: Sequence[str] = (),
        tool_name: str | None = None,
        tags_any: Sequence[str] = (),
        parent_id: str | None = None,
        id_beginning: str | None = None,
        submitted_after: int | None = None,
        oldest_first: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> TaskPage:
        page = self._server.get(
            "/tasks",
            owner=owner,
            state=[str(state) for state in states],
            tool=tool_name,
            tag=[*tags_any],
            parent=parent_id,
            id=id_beginning,
            since=iso(submitted_after),
            sort="oldest" if oldest_first else None,
            limit=limit,
            cursor=cursor,
        )
        found = [_status(one) for one in page["tasks"]]
        self._views = {one.task_id: one for one in found}
        return TaskPage([one.task for one in found], page["next_cursor"])

    def view(self, task: Task) -> TaskStatus:
        """What is known of a task of the last list."""
        return self._views[task.task_id]

    def status(self, task_id: str, *, owner: str | None = None) -> TaskStatus:
        return _status(self.whole(task_id))

    def logs(
        self,
        task_id: str,
        *,
        owner: str | None = None,
        cursor: str | None = None,
        limit: int = 200,
        operator: bool = False,
    ) -> LogPage:
        """The server decides by the token's role whether lines for an operator are included."""
        after = 0 if cursor is None else log_seq(cursor)
        page = self._server.get(f"/tasks/{task_id}/logs", after=after, limit=limit)
        lines = page["lines"]
        while page["next_offset"]:  # a line that no page holds comes in parts
            rest = {"after": page["next_after"], "offset": page["next_offset"], "limit": 1}
            page = {**self._server.get(f"/tasks/{task_id}/logs", **rest), "more": True}
            lines[-1]["message"] += page["lines"][0]["message"]
        shown = _LINES.validate_python([_in_ms(line) for line in lines])
        return LogPage(shown, log_cursor(shown[-1].seq if shown else after), page["more"])

    def artifacts(self, task_id: str, *, owner: str | None = None) -> Sequence[Artifact]:
        return [_artifact(task_id, one) for one in self.files(task_id)]

    def result(self, task_id: str, *, owner: str | None = None) -> TaskResult:
        outcome = self._server.get(f"/tasks/{task_id}/result")
        task = _task({**self.whole(task_id), "result": outcome["result"], "result_kind": "value"})
        return TaskResult(task, [_artifact(task_id, one) for one in outcome["artifacts"]])

    def cancel(self, task_id: str, *, owner: str | None = None, reason: str | None = None) -> TaskStatus:
        body = {} if reason is None else {"reason": reason}
        return _status(self._server.post(f"/tasks/{task_id}/cancel", body))

    def retry(self, task_id: str, *, owner: str | None = None) -> TaskStatus:
        return _status(self._server.post(f"/tasks/{task_id}/retry"))

    def answer_input(
        self, task_id: str, answers: Mapping[str, Mapping[str, Any]], *, owner: str | None = None
    ) -> TaskStatus:
        return _status(self._server.post(f"/tasks/{task_id}/answers", {"answers": answers}))

    def wait(self, task_id: str, timeout_s: float, *, owner: str | None = None) -> TaskStatus:
        end = time.monotonic() + timeout_s
        while not (status := self.status(task_id)).task.finished and time.monotonic() < end:
            time.sleep(min(_LOOK_S, max(0.0, end - time.monotonic())))
        return status

    def close(self) -> None:
        self._server.close()


class RemoteStore:
    """What the verbs about tasks ask a store for, and no more."""

    shared = True

    def __init__(self, service: RemoteService) -> None:
        self._service = service

    def ids(self, beginning: str, owner: str | None = None, limit: int = 10) -> list[str]:
        page = self._service.list(id_beginning=beginning, limit=limit)
        return [task.task_id for task in page.tasks]

    def attempts(self, task_id: str) -> list[Attempt]:
        return _ATTEMPTS.validate_python([_in_ms(one) for one in self._service.whole(task_id)["attempts"]])

    def events(self, task_id: str) -> list[Event]:
        return _EVENTS.validate_python([_in_ms(one) for one in self._service.whole(task_id)["events"]])

    def artifacts(self, task_id: str) -> Sequence[Artifact]:
        return self._service.artifacts(task_id)

    def watch(self) -> _NoNews:
        return _NoNews()

    def count_owners(self) -> dict[str, int]:
        """The server does not tell what others have."""
        return {}

    def close(self) -> None: ...


class RemoteFiles:
    """The files that tasks made, by the links that the server signs."""

    def __init__(self, service: RemoteService) -> None:
        self._service = service

    def chunks(self, artifact: Artifact, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        made = self._service.files(artifact.task_id)
        links = [one["download_url"] for one in made if one["artifact_id"] == artifact.artifact_id]
        if not links or links[0] is None:
            raise NotOffered(what="a link to this file", task_id=artifact.task_id)
        with httpx2.stream("GET", links[0], timeout=60) as answer:
            if answer.status_code != 200:
                raise FileNotFoundError(artifact.name)
            yield from answer.iter_bytes()


class _NoNews:
    """In the place of a watch: it hears nothing, and who waits looks again now and then anyway."""

    def __init__(self) -> None:
        self._silent, self._open = os.pipe()

    def fileno(self) -> int:
        return self._silent

    def drain(self) -> set[str]:
        return set()

    def wait(self, timeout_s: float) -> set[str]:
        time.sleep(min(timeout_s, _LOOK_S))
        return set()

    def mend(self) -> None: ...

    def close(self) -> None:
        os.close(self._silent)
        os.close(self._open)


class _Looking:
    """In the place of news: who listens looks again now and then."""

    def listen(self, topic: str, callback: Callable[[], None]) -> Callable[[], None]:
        over = threading.Event()

        def run() -> None:
            while not over.wait(_LOOK_S):
                callback()

        threading.Thread(target=run, name="backburner-looking", daemon=True).start()
        return over.set


def _in_ms(shown: Mapping[str, Any]) -> dict[str, Any]:
    """A record with its times as the records themselves have them."""
    return {
        key: from_iso(value) if (key.endswith("_at") or key in _TIMES) and isinstance(value, str) else value
        for key, value in shown.items()
    }


def _task(shown: Mapping[str, Any]) -> Task:
    return _TASK.validate_python({"seq": 0, **_in_ms(shown)})


def _status(shown: Mapping[str, Any]) -> TaskStatus:
    task = _task(shown)
    questions = [
        InputRequest(
            task.task_id,
            one["key"],
            task.attempt,
            "elicitation/create",
            {"message": one["message"], "requestedSchema": one["schema"]},
            asked_at=task.updated_at,
        )
        for one in shown["questions"]
    ]
    source = EstimateSource(shown["estimate_source"])
    estimate = ExpectedRuntime(shown["estimate_s"], source)
    poll_ms = shown["poll_after_ms"] or 0
    return TaskStatus(
        task, shown["position"], estimate, shown["eta_s"], poll_ms, questions, shown.get("created", False)
    )


def _artifact(task_id: str, shown: Mapping[str, Any]) -> Artifact:
    return Artifact(
        shown["artifact_id"],
        task_id,
        shown["attempt"],
        shown["name"],
        shown["kind"],
        shown["size_bytes"],
        shown["sha256"],
        "",
        from_iso(shown["created_at"]),
    )
