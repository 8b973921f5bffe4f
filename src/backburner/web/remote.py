"""Task and operator services of a remote server, over its HTTP API."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2
from msgspec import convert
from msgspec.structs import asdict

from .. import errors
from ..core.requests import TaskRequest, log_cursor, log_seq
from ..core.task import LOCAL_OWNER, Artifact, Attempt, Event, InputRequest, LogLine, Task
from ..core.times import from_iso, iso
from ..errors import BackburnerError, ConnectionLost, InvalidRequest, NotAuthorized, NotOffered, UnknownTool
from ..service.cursors import TaskPage
from ..service.protocol import Record
from ..service.tasks import LogPage, TaskHistory, TaskResult, TaskStatus
from ..tools.estimates import EstimateSource, ExpectedRuntime

_TIMEOUT_S = 60
_BY_CODE = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, BackburnerError)
}


class Connection:
    """HTTP connection to a server, with a bearer token. It connects on the first request."""

    def __init__(self, server: str, token: str | None) -> None:
        """Raises InvalidRequest for a malformed address or token."""
        bearer = {"Authorization": f"Bearer {token}"} if token else {}
        base = server.rstrip("/").removesuffix("/mcp").removesuffix("/api/v1")
        try:
            parts = urlsplit(server)
            self.name = f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")
            self._http = httpx2.Client(base_url=f"{base}/api/v1", headers=bearer, timeout=_TIMEOUT_S)
        except (ValueError, httpx2.InvalidURL):
            raise InvalidRequest(reason="the server address or the token is malformed") from None

    def get(self, path: str, **query: Any) -> Any:
        """Send a GET request. None and empty lists are left out of the query."""
        return self.ask("GET", path, {key: value for key, value in query.items() if value not in (None, [])})

    def post(self, path: str, body: Any = None) -> Any:
        return self.ask("POST", path, body={} if body is None else body)

    def ask(self, method: str, path: str, query: Any = None, body: Any = None) -> Any:
        """Return the response's JSON. Raises the server's error, ConnectionLost or NotAuthorized."""
        try:
            answer = self._http.request(method, path, params=query, json=body)
        except httpx2.HTTPError as error:
            raise ConnectionLost(server=self.name, reason=str(error) or type(error).__name__) from None
        if answer.status_code >= 400:
            raise self._error(answer)
        if not answer.content:
            return None
        try:
            return answer.json()
        except ValueError:
            reason = f"status {answer.status_code} without JSON: this is no Backburner API"
            raise ConnectionLost(server=self.name, reason=reason) from None

    def _error(self, answer: httpx2.Response) -> BackburnerError:
        try:
            said = dict(answer.json())
        except (TypeError, ValueError):
            said = {}
        detail = str(said.get("detail") or answer.text.strip()[:200] or answer.reason_phrase)
        if answer.status_code in (401, 403):
            return NotAuthorized(server=self.name, reason=detail.rstrip("."))
        try:
            return _BY_CODE[said["code"]](**said["details"])
        except (KeyError, TypeError, ValueError):  # another release, or another server
            return ConnectionLost(server=self.name, reason=f"status {answer.status_code}: {detail}")

    def close(self) -> None:
        self._http.close()


_TIMES = ("ts", "last_heartbeat")
_POLL_S = 0.5


class RemoteTaskService:
    """TaskServiceProtocol over HTTP. The server derives the owner from the token.

    An explicit owner is accepted only for tokens that see all owners. Raises the server's errors.
    """

    def __init__(self, server: Connection) -> None:
        self._server = server
        self._views: dict[str, TaskStatus] = {}
        self.changes = PollingChanges()

    def _get(self, task_id: str, part: str = "", **query: Any) -> Any:
        return self._server.get(f"/tasks/{task_id}{part}", **query)

    def submit_request(self, request: TaskRequest) -> TaskStatus:
        """Raises InvalidRequest for an owner: the task belongs to the token's owner."""
        if request.owner != LOCAL_OWNER:
            raise InvalidRequest(reason="through a server, a task belongs to the owner of the token")
        given = asdict(request)
        del given["owner"], given["resources"]
        body = {
            "tool": given.pop("tool_name"),
            "parent": given.pop("parent_id"),
            "max_runtime_s": request.resources and request.resources.max_runtime_s,
            **given,  # the server refuses what it does not take
        }
        told = {name: value for name, value in body.items() if value not in (None, (), {})}
        return _status(self._server.post("/tasks", told))

    def ids(self, beginning: str, owner: str | None = None, limit: int = 10) -> list[str]:
        return [task.task_id for task in self.list(id_beginning=beginning, limit=limit).tasks]

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
        return self._views[task.task_id]

    def status(self, task_id: str, *, owner: str | None = None) -> TaskStatus:
        return _status(self._get(task_id))

    def history(self, task_id: str, *, owner: str | None = None) -> TaskHistory:
        whole = self._get(task_id)
        attempts, events = ([_in_ms(one) for one in whole[name]] for name in ("attempts", "events"))
        return TaskHistory(convert(attempts, list[Attempt]), convert(events, list[Event]), ())

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
        page = self._get(task_id, "/logs", after=after, limit=limit)
        lines = page["lines"]
        while page["next_offset"]:  # a line longer than a page comes in parts
            rest = {"after": page["next_after"], "offset": page["next_offset"], "limit": 1}
            page = {**self._get(task_id, "/logs", **rest), "more": True}
            lines[-1]["message"] += page["lines"][0]["message"]
        shown = convert([_in_ms(line) for line in lines], list[LogLine])
        return LogPage(shown, log_cursor(shown[-1].seq if shown else after), page["more"])

    def artifacts(self, task_id: str, *, owner: str | None = None) -> Sequence[Artifact]:
        return [_artifact(task_id, one) for one in self._get(task_id, "/artifacts")["artifacts"]]

    def result(self, task_id: str, *, owner: str | None = None) -> TaskResult:
        outcome = self._get(task_id, "/result")
        task = _task({**self._get(task_id), "result": outcome["result"], "result_kind": "value"})
        return TaskResult(task, [_artifact(task_id, one) for one in outcome["artifacts"]])

    def cancel(self, task_id: str, *, owner: str | None = None, reason: str | None = None) -> TaskStatus:
        body = {} if reason is None else {"reason": reason}
        return _status(self._server.post(f"/tasks/{task_id}/cancel", body))

    def retry(self, task_id: str, *, owner: str | None = None) -> TaskStatus:
        return _status(self._server.post(f"/tasks/{task_id}/retry"))

    def delete(self, task_id: str, *, owner: str | None = None) -> None:
        self._server.ask("DELETE", f"/tasks/{task_id}")

    def answer_input(
        self, task_id: str, answers: Mapping[str, Mapping[str, Any]], *, owner: str | None = None
    ) -> TaskStatus:
        return _status(self._server.post(f"/tasks/{task_id}/answers", {"answers": answers}))

    def wait(self, task_id: str, timeout_s: float, *, owner: str | None = None) -> TaskStatus:
        end = time.monotonic() + timeout_s
        while not (status := self.status(task_id)).task.finished and time.monotonic() < end:
            time.sleep(min(_POLL_S, max(0.0, end - time.monotonic())))
        return status

    def close(self) -> None:
        self._server.close()


class RemoteArtifacts:
    """Artifacts of a remote server, read through signed links."""

    def __init__(self, server: Connection) -> None:
        self._server = server

    def chunks(self, artifact: Artifact, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        found = self._server.get(f"/tasks/{artifact.task_id}/artifacts")["artifacts"]
        links = [one["download_url"] for one in found if one["artifact_id"] == artifact.artifact_id]
        if not links or links[0] is None:
            raise NotOffered(what="a link to this file", task_id=artifact.task_id)
        last = "" if length is None else offset + length - 1
        headers = {"Range": f"bytes={offset}-{last}"} if offset or length is not None else {}
        with httpx2.stream("GET", links[0], headers=headers, timeout=_TIMEOUT_S) as answer:
            if answer.status_code not in (200, 206):
                raise FileNotFoundError(artifact.name)
            yield from answer.iter_bytes()

    def read(self, artifact: Artifact, offset: int = 0, length: int | None = None) -> bytes:
        return b"".join(self.chunks(artifact, offset, length))


class PollingChanges:
    """ChangeSource without notifications: each callback runs twice a second."""

    def listen(self, topic: str, callback: Callable[[], None]) -> Callable[[], None]:
        stopped = threading.Event()

        def run() -> None:
            while not stopped.wait(_POLL_S):
                callback()

        threading.Thread(target=run, name="backburner-polling", daemon=True).start()
        return stopped.set


def _in_ms(shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with its ISO times as milliseconds."""
    return {
        key: from_iso(value) if (key.endswith("_at") or key in _TIMES) and isinstance(value, str) else value
        for key, value in shown.items()
    }


def _task(shown: Mapping[str, Any]) -> Task:
    return convert({"seq": 0, **_in_ms(shown)}, Task)


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


class RemoteOperatorService:
    """OperatorServiceProtocol over HTTP. The token's role limits the answers."""

    def __init__(self, server: Connection) -> None:
        self._server = server

    def _list(self, path: str, name: str, **query: Any) -> list[Record]:
        found: list[Record] = self._server.get(path, **query)[name]
        return found

    def queues(self) -> list[Record]:
        return self._list("/queues", "queues")

    def workers(self) -> list[Record]:
        return self._list("/workers", "workers")

    def supervisor(self) -> Record:
        return dict(self._server.get("/supervisor"))

    def states(self, owner: str | None = None) -> dict[str, int]:
        return dict(self._server.get("/states", owner=owner)["states"])

    def runtimes(self, owner: str | None = None) -> list[Record]:
        return self._list("/runtimes", "tools", owner=owner)

    def statistics(
        self,
        owner: str | None = None,
        *,
        since: int | None = None,
        until: int | None = None,
        every_s: float = 60,
        tool_name: str | None = None,
        queue: str | None = None,
    ) -> Record:
        times = {"since": iso(since), "until": iso(until), "every_s": every_s}
        found = self._server.get("/statistics", owner=owner, tool=tool_name, queue=queue, **times)
        return dict(found)

    def overview(self, owner: str | None = None) -> Record:
        return dict(self._server.get("/overview", owner=owner))

    def tools(self) -> list[Record]:
        return self._list("/tools", "tools")

    def input_schema(self, tool_name: str) -> dict[str, Any]:
        schemas = {one["tool_name"]: one["input_schema"] for one in self.tools()}
        if tool_name not in schemas:
            raise UnknownTool(tool_name=tool_name, known=", ".join(sorted(schemas)) or "none")
        return dict(schemas[tool_name])

    def clients(self) -> list[Record]:
        return self._list("/clients", "clients")

    def webhooks(self, owner: str | None = None) -> list[Record]:
        return self._list("/webhooks", "deliveries", owner=owner)

    def pause(self, queue: str) -> None:
        self._server.post(f"/queues/{quote(queue, safe='')}/pause")

    def resume(self, queue: str) -> None:
        self._server.post(f"/queues/{quote(queue, safe='')}/resume")

    def forget_clients(self, name: str | None = None) -> int:
        query = {} if name is None else {"name": name}
        return int(self._server.ask("DELETE", "/clients", query)["forgotten"])

    def retry_webhook(self, webhook_id: str, owner: str | None = None) -> bool:
        return bool(self._server.post(f"/webhooks/{quote(webhook_id, safe='')}/retry")["retried"])
