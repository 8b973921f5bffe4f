"""Client of the worker API: the part of a store that a supervisor of one task needs."""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2
from msgspec import convert, to_builtins

from ...core.files import tasks_folder
from ...core.lifecycle import State
from ...core.limits import Limits
from ...core.reports import Change, Registered
from ...core.task import Artifact, InputRequest, Task, TaskHead, Worker
from ...errors import InvalidRequest, StoreRefused, StoreUnavailable
from ...settings import ArtifactSettings
from ...store.artifacts import open_artifacts
from ...store.protocol import Lease, LeaseView, Watch
from . import PATH

_TIMEOUT_S = 30.0


class TaskEnded(StoreRefused):
    """The server {store} takes nothing more for this task: {reason}."""

    def __init__(self, store: str, state: State) -> None:
        super().__init__(store=store, reason=f"it is {state}")
        self.state = state


class RemoteStore:
    """The one task that a token is for, on a server. Connection errors are raised as StoreError.

    Artifacts are sent to the server before they are reported. Cancellations and answers arrive with the next
    heartbeat. The token is void when the task has ended: then TaskEnded is raised.
    """

    shared = True

    def __init__(self, server: str, token: str, data_dir: Path) -> None:
        """Raises InvalidRequest when the server refuses the token, TaskEnded and StoreUnavailable."""
        self.url = server.rstrip("/")
        headers = {"Authorization": f"Bearer {token}"}
        self._http = httpx2.Client(base_url=self.url + PATH, headers=headers, timeout=_TIMEOUT_S)
        self._files = open_artifacts(ArtifactSettings(), tasks_folder(data_dir))
        self._lease: Lease | None = None
        self.task = self.begin()

    def begin(self) -> Task:
        """Return the task as it is now."""
        begun = self._post("begin", {})
        self.supervisor_id = str(begun["supervisor_id"])
        return convert(begun["task"], Task)

    def claim_task(self, task_id: str, worker: str, limits: Limits | None = None) -> Lease | None:
        """The server applies its own limits."""
        try:
            self._lease = convert(self._post("claim", {"worker": worker}), Lease | None)
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
                body = {**_holder(lease), "changes": to_builtins(changes)}
                is_lost = self._post("report", body)["lost"]
            except TaskEnded:
                is_lost = True
            if is_lost:
                lost.append(lease)
        return lost

    def heartbeat(self, leases: Sequence[Lease], workers: Sequence[Worker]) -> list[LeaseView]:
        body = {
            "leases": [_holder(lease) for lease in leases],
            "workers": to_builtins(workers),
        }
        try:
            return convert(self._post("heartbeat", body), list[LeaseView])
        except TaskEnded as ended:
            return [LeaseView(False, ended.state) for _ in leases]

    def remove_workers(self, supervisor_id: str) -> None:
        self._post("leave", {})

    def head(self, task_id: str) -> TaskHead:
        return convert(self._post("head", {}), TaskHead)

    def input_requests(self, task_id: str) -> list[InputRequest]:
        return convert(self._post("input_requests", {}), list[InputRequest])

    def answer(self, task_id: str, answers: Mapping[str, tuple[str, Any]]) -> Task:
        body = {**({} if self._lease is None else _holder(self._lease)), "answers": answers}
        return convert(self._post("answer", body), Task)

    def watch(self) -> Watch:
        return _SilentWatch()

    def close(self) -> None:
        self._http.close()

    def _post(self, operation: str, body: dict[str, Any]) -> Any:
        return self._request("POST", f"/{operation}", content=json.dumps(body).encode())

    def _send_file(self, lease: Lease, artifact: Artifact) -> None:
        params = {**_holder(lease), "size": artifact.size_bytes, "sha256": artifact.sha256}
        content = self._files.chunks(artifact)
        self._request("PUT", f"/files/{artifact.artifact_id}", params=params, content=content)

    def _request(self, method: str, path: str, **request: Any) -> Any:
        """Raises InvalidRequest where another try is useless, and StoreError for all else."""
        try:
            response = self._http.request(method, path, **request)
        except httpx2.HTTPError as error:
            raise StoreUnavailable(store=self.url, reason=str(error) or type(error).__name__) from None
        if response.status_code == 200:
            return response.json()
        if response.status_code == 410:
            raise TaskEnded(self.url, State(response.json()["state"]))
        try:
            reason = response.json()["message"]
        except (ValueError, KeyError, TypeError):
            reason = f"it answered {response.status_code}; set http.worker_door on the server"
        if response.status_code in (403, 404):
            raise InvalidRequest(reason=f"{self.url} refuses this worker: {reason}")
        if response.status_code == 400:
            raise StoreRefused(store=self.url, reason=reason)
        raise StoreUnavailable(store=self.url, reason=reason)


def _holder(lease: Lease) -> dict[str, Any]:
    return {"attempt": lease.attempt, "worker": lease.worker_id}


class _SilentWatch:
    """A watch without notifications: heartbeats bring the news."""

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
