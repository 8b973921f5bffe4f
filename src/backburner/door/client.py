"""The worker's side of the door: a store, as far as a supervisor of one task needs one."""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2

from ..errors import InvalidRequest, StoreRefused, StoreUnavailable
from ..folders import tasks_folder
from ..limits import Limits
from ..reports import Change, Registered
from ..store import Lease, LeaseView
from ..task import Artifact, InputRequest, Task, TaskHead, Worker
from ..watch import Watch
from . import wire

_TIMEOUT_S = 30.0
_CHUNK = 1 << 20


class DoorStore:
    """The one task that a token is for, behind a server. What went wrong on the way is a StoreError.

    Files that the task keeps are sent to the server before it is told of them. Cancels and answers are
    heard with the next heartbeat.
    """

    shared = True

    def __init__(self, server: str, token: str, data_dir: Path) -> None:
        """Raises InvalidRequest when the server does not know the token, and StoreUnavailable."""
        self.url = server.rstrip("/")
        headers = {"Authorization": f"Bearer {token}"}
        self._http = httpx2.Client(base_url=self.url + wire.PATH, headers=headers, timeout=_TIMEOUT_S)
        self._files = tasks_folder(data_dir)
        self.task = self.begin()

    def begin(self) -> Task:
        """The task as it is now."""
        begun = self._say("begin", {})
        self.supervisor_id = str(begun["supervisor_id"])
        return wire.TASK.validate_python(begun["task"])

    def claim_task(self, task_id: str, worker: str, limits: Limits | None = None) -> Lease | None:
        """The limits are the server's own."""
        return wire.LEASE.validate_python(self._say("claim", {"worker": worker}))

    def report_all(self, reports: Sequence[tuple[Lease, Sequence[Change]]]) -> list[Lease]:
        lost = []
        for lease, changes in reports:
            for change in changes:
                if isinstance(change, Registered):
                    self._send_file(change.artifact)
            said = {**_named(lease), "changes": wire.changes_out(changes)}
            if self._say("report", said)["lost"]:
                lost.append(lease)
        return lost

    def heartbeat(self, leases: Sequence[Lease], workers: Sequence[Worker]) -> list[LeaseView]:
        said = {
            "leases": [_named(lease) for lease in leases],
            "workers": wire.WORKERS.dump_python(list(workers), mode="json"),
        }
        return wire.VIEWS.validate_python(self._say("heartbeat", said))

    def remove_workers(self, supervisor_id: str) -> None:
        self._say("leave", {})

    def head(self, task_id: str) -> TaskHead:
        return wire.HEAD.validate_python(self._say("head", {}))

    def input_requests(self, task_id: str) -> list[InputRequest]:
        return wire.REQUESTS.validate_python(self._say("input_requests", {}))

    def answer(self, task_id: str, answers: Mapping[str, tuple[str, Any]]) -> Task:
        return wire.TASK.validate_python(self._say("answer_for_nobody", {"answers": answers}))

    def watch(self) -> Watch:
        return _Deaf()

    def close(self) -> None:
        self._http.close()

    def _say(self, verb: str, said: dict[str, Any]) -> Any:
        try:
            answer = self._http.post(f"/{verb}", content=json.dumps(said).encode())
        except httpx2.HTTPError as error:
            raise StoreUnavailable(store=self.url, reason=str(error) or type(error).__name__) from None
        return self._read(answer)

    def _send_file(self, artifact: Artifact) -> None:
        path = self._files / artifact.path
        headers = {"X-Sha256": artifact.sha256}
        try:
            answer = self._http.put(f"/files/{artifact.path}", content=_pieces(path), headers=headers)
        except httpx2.HTTPError as error:
            raise StoreUnavailable(store=self.url, reason=str(error) or type(error).__name__) from None
        self._read(answer)

    def _read(self, answer: Any) -> Any:
        """Raises InvalidRequest for what no other try would mend, and StoreError for all else."""
        if answer.status_code == 200:
            return answer.json()
        try:
            reason = answer.json()["message"]
        except (ValueError, KeyError, TypeError):
            reason = f"it answered {answer.status_code}; is the door open there (http.worker_door)?"
        if answer.status_code in (403, 404):
            raise InvalidRequest(reason=f"{self.url} does not let this worker in: {reason}")
        if answer.status_code == 400:
            raise StoreRefused(store=self.url, reason=reason)
        raise StoreUnavailable(store=self.url, reason=reason)


def _named(lease: Lease) -> dict[str, Any]:
    return {"attempt": lease.attempt, "worker": lease.worker_id}


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


class _Deaf:
    """A watch that hears nothing: heartbeats tell the rest."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()

    def fileno(self) -> int:
        return self._reader.fileno()

    def drain(self) -> set[str]:
        return set()

    def wait(self, timeout_s: float | None = None) -> set[str]:
        select.select([self._reader], [], [], timeout_s)
        return set()

    def mend(self) -> None: ...

    def close(self) -> None:
        self._reader.close()
        self._writer.close()
