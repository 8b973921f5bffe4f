"""The worker's side of the door: a store, as far as a supervisor of one task needs one."""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2

from ..artifacts import open_artifacts
from ..config import ArtifactSettings
from ..errors import InvalidRequest, StoreRefused, StoreUnavailable
from ..folders import tasks_folder
from ..lifecycle import State
from ..limits import Limits
from ..reports import Change, Registered
from ..store import Lease, LeaseView
from ..task import Artifact, InputRequest, Task, TaskHead, Worker
from ..watch import Watch
from . import wire

_TIMEOUT_S = 30.0


class TaskEnded(StoreRefused):
    """The server {store} takes nothing more for this task: {reason}."""

    def __init__(self, store: str, state: State) -> None:
        super().__init__(store=store, reason=f"it is {state}")
        self.state = state


class DoorStore:
    """The one task that a token is for, behind a server. What went wrong on the way is a StoreError.

    Files that the task keeps are sent to the server before it is told of them. Cancels and answers are
    heard with the next heartbeat. The token is void when the task has ended: raises TaskEnded then.
    """

    shared = True

    def __init__(self, server: str, token: str, data_dir: Path) -> None:
        """Raises InvalidRequest when the server does not know the token, TaskEnded and StoreUnavailable."""
        self.url = server.rstrip("/")
        headers = {"Authorization": f"Bearer {token}"}
        self._http = httpx2.Client(base_url=self.url + wire.PATH, headers=headers, timeout=_TIMEOUT_S)
        self._files = open_artifacts(ArtifactSettings(), tasks_folder(data_dir))
        self._lease: Lease | None = None
        self.task = self.begin()

    def begin(self) -> Task:
        """The task as it is now."""
        begun = self._say("begin", {})
        self.supervisor_id = str(begun["supervisor_id"])
        return wire.TASK.validate_python(begun["task"])

    def claim_task(self, task_id: str, worker: str, limits: Limits | None = None) -> Lease | None:
        """The limits are the server's own."""
        try:
            self._lease = wire.LEASE.validate_python(self._say("claim", {"worker": worker}))
        except TaskEnded:
            self._lease = None
        return self._lease

    def report_all(self, reports: Sequence[tuple[Lease, Sequence[Change]]]) -> list[Lease]:
        lost = []
        for lease, changes in reports:
            try:
                for change in changes:
                    if isinstance(change, Registered):
                        self._send_file(lease, change.artifact)
                said = {**_named(lease), "changes": wire.changes_out(changes)}
                is_lost = self._say("report", said)["lost"]
            except TaskEnded:
                is_lost = True
            if is_lost:
                lost.append(lease)
        return lost

    def heartbeat(self, leases: Sequence[Lease], workers: Sequence[Worker]) -> list[LeaseView]:
        said = {
            "leases": [_named(lease) for lease in leases],
            "workers": wire.workers_out(workers),
        }
        try:
            return wire.VIEWS.validate_python(self._say("heartbeat", said))
        except TaskEnded as ended:
            return [LeaseView(False, ended.state) for _ in leases]

    def remove_workers(self, supervisor_id: str) -> None:
        self._say("leave", {})

    def head(self, task_id: str) -> TaskHead:
        return wire.HEAD.validate_python(self._say("head", {}))

    def input_requests(self, task_id: str) -> list[InputRequest]:
        return wire.REQUESTS.validate_python(self._say("input_requests", {}))

    def answer(self, task_id: str, answers: Mapping[str, tuple[str, Any]]) -> Task:
        said = {**({} if self._lease is None else _named(self._lease)), "answers": answers}
        return wire.TASK.validate_python(self._say("answer_for_nobody", said))

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

    def _send_file(self, lease: Lease, artifact: Artifact) -> None:
        params = {**_named(lease), "size": artifact.size_bytes, "sha256": artifact.sha256}
        chunks = self._files.chunks(artifact)
        try:
            answer = self._http.put(f"/files/{artifact.artifact_id}", params=params, content=chunks)
        except httpx2.HTTPError as error:
            raise StoreUnavailable(store=self.url, reason=str(error) or type(error).__name__) from None
        self._read(answer)

    def _read(self, answer: Any) -> Any:
        """Raise InvalidRequest for what no other try would mend, and StoreError for all else."""
        if answer.status_code == 200:
            return answer.json()
        if answer.status_code == 410:
            raise TaskEnded(self.url, State(answer.json()["state"]))
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
