"""Tasks through the API of a server elsewhere, with the verbs of a TaskService: for the command line."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx2
from pydantic import TypeAdapter

from .. import client_errors, errors
from ..client_errors import ConnectionLost, NotAuthorized, NotOffered
from ..errors import BackburnerError
from ..estimate import EstimateSource, ExpectedRuntime
from ..service import LogPage, TaskResult, TaskStatus
from ..task import Artifact, Attempt, Event, InputRequest, LogLine, Task
from ..task_pages import TaskPage
from ..task_request import log_cursor, log_seq
from ..times import from_iso, iso

_TASK, _ATTEMPTS, _EVENTS = TypeAdapter(Task), TypeAdapter(list[Attempt]), TypeAdapter(list[Event])
_LINES = TypeAdapter(list[LogLine])
_TIMES = ("ts", "last_heartbeat")
_BY_CODE = {
    kind.code: kind
    for kind in (*vars(errors).values(), *vars(client_errors).values())
    if isinstance(kind, type) and issubclass(kind, BackburnerError)
}
_LOOK_S = 0.5


class RemoteService:
    """What a TaskService does, for whoever the token stands for. Raises what the server says.

    The server knows whose tasks these are: an owner that is named here is only for who sees all.
    """

    def __init__(self, server: str, token: str | None) -> None:
        bearer = {"Authorization": f"Bearer {token}"} if token else {}
        parts = urlsplit(server)
        self._name = f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")
        base = server.rstrip("/").removesuffix("/mcp").removesuffix("/api/v1")
        self._http = httpx2.Client(base_url=f"{base}/api/v1", headers=bearer, timeout=60)
        self._views: dict[str, TaskStatus] = {}
        self.store = RemoteStore(self)
        self.changes = _Looking()

    # -- asking

    def ask(self, method: str, path: str, query: Any = None, body: Any = None) -> Any:
        try:
            answer = self._http.request(method, path, params=query, json=body)
        except httpx2.HTTPError as error:
            raise ConnectionLost(server=self._name, reason=str(error) or type(error).__name__) from None
        if answer.status_code < 400:
            return answer.json() if answer.content else None
        raise self._error(answer)

    def _error(self, answer: httpx2.Response) -> BackburnerError:
        try:
            said: dict[str, Any] = answer.json()
        except ValueError:
            said = {}
        detail = said.get("detail") or answer.text.strip()[:200] or answer.reason_phrase
        if answer.status_code in (401, 403):
            return NotAuthorized(server=self._name, reason=detail.rstrip("."))
        kind = _BY_CODE.get(said.get("code", ""))
        if kind is None:
            return ConnectionLost(server=self._name, reason=f"it answered {answer.status_code}: {detail}")
        return kind(**said["details"])

    def whole(self, task_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("GET", f"/tasks/{task_id}")
        return found

    # -- the verbs of a TaskService

    def list(self, *, owner: str | None = None, cursor: str | None = None, **filters: Any) -> TaskPage:
        query = {
            "owner": owner,
            "state": [str(state) for state in filters.get("states") or ()],
            "tool": filters.get("tool_name"),
            "tag": [*(filters.get("tags_any") or ())],
            "parent": filters.get("parent_id"),
            "id": filters.get("id_beginning"),
            "since": iso(filters.get("submitted_after")),
            "limit": filters.get("limit"),
            "cursor": cursor,
        }
        page = self.ask(
            "GET", "/tasks", {key: value for key, value in query.items() if value not in (None, [])}
        )
        found = [_status(one) for one in page["tasks"]]
        self._views |= {one.task_id: one for one in found}
        return TaskPage([one.task for one in found], page["next_cursor"])

    def view(self, task: Task) -> TaskStatus:
        return self._views[task.task_id]

    def status(self, task_id: str, *, owner: str | None = None) -> TaskStatus:
        return _status(self.whole(task_id))

    def logs(
        self, task_id: str, *, owner: str | None = None, cursor: str | None = None, limit: int = 200
    ) -> LogPage:
        after = 0 if cursor is None else log_seq(cursor)
        page = self.ask("GET", f"/tasks/{task_id}/logs", {"after": after, "limit": limit})
        lines = page["lines"]
        while page["next_offset"]:  # a line that no page holds comes in parts
            rest = {"after": page["next_after"], "offset": page["next_offset"], "limit": 1}
            page = {**self.ask("GET", f"/tasks/{task_id}/logs", rest), "more": True}
            lines[-1]["message"] += page["lines"][0]["message"]
        shown = _LINES.validate_python([_in_ms(line) for line in lines])
        return LogPage(shown, log_cursor(shown[-1].seq if shown else after), page["more"])

    def artifacts(self, task_id: str, *, owner: str | None = None) -> Sequence[Artifact]:
        made = self.ask("GET", f"/tasks/{task_id}/artifacts")["artifacts"]
        return [_artifact(task_id, one) for one in made]

    def result(self, task_id: str, *, owner: str | None = None) -> TaskResult:
        outcome = self.ask("GET", f"/tasks/{task_id}/result")
        task = _task({**self.whole(task_id), "result": outcome["result"], "result_kind": "value"})
        return TaskResult(task, [_artifact(task_id, one) for one in outcome["artifacts"]])

    def cancel(self, task_id: str, *, owner: str | None = None, reason: str | None = None) -> TaskStatus:
        body = {} if reason is None else {"reason": reason}
        return _status(self.ask("POST", f"/tasks/{task_id}/cancel", body=body))

    def retry(self, task_id: str, *, owner: str | None = None) -> TaskStatus:
        return _status(self.ask("POST", f"/tasks/{task_id}/retry", body={}))

    def answer_input(
        self, task_id: str, answers: Mapping[str, Mapping[str, Any]], *, owner: str | None = None
    ) -> TaskStatus:
        return _status(self.ask("POST", f"/tasks/{task_id}/answers", body={"answers": answers}))

    def wait(self, task_id: str, timeout_s: float, *, owner: str | None = None) -> TaskStatus:
        end = time.monotonic() + timeout_s
        while not (status := self.status(task_id)).task.finished and time.monotonic() < end:
            time.sleep(min(_LOOK_S, max(0.0, end - time.monotonic())))
        return status

    def close(self) -> None:
        self._http.close()


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
        made = self._service.ask("GET", f"/tasks/{artifact.task_id}/artifacts")["artifacts"]
        links = [one["download_url"] for one in made if one["artifact_id"] == artifact.artifact_id]
        if not links or links[0] is None:
            raise NotOffered(what="a link to this file", task_id=artifact.task_id)
        with httpx2.stream("GET", links[0], timeout=60) as answer:
            if answer.status_code != 200:
                raise FileNotFoundError(artifact.name)
            yield from answer.iter_bytes()


class _NoNews:
    """In the place of a watch: it hears something now and then."""

    def wait(self, timeout_s: float) -> set[str]:
        time.sleep(min(timeout_s, _LOOK_S))
        return set()

    def mend(self) -> None: ...

    def close(self) -> None: ...


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
