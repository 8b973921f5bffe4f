"""What a supervisor asks of a store about the attempts that it has: those verbs of `Store`, and no others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from .limits import Limits
from .reports import Change
from .store import Lease, LeaseView
from .task import InputRequest, Task, TaskHead, Worker
from .watch import Watch


class WorkerStore(Protocol):
    """A store for those who run named tasks: a `Store`, or the door of a server that has one."""

    @property
    def url(self) -> str: ...

    @property
    def shared(self) -> bool: ...

    def claim_task(self, task_id: str, worker: str, limits: Limits | None = ...) -> Lease | None: ...

    def report_all(self, reports: Sequence[tuple[Lease, Sequence[Change]]]) -> list[Lease]: ...

    def heartbeat(self, leases: Sequence[Lease], workers: Sequence[Worker]) -> list[LeaseView]: ...

    def remove_workers(self, supervisor_id: str) -> None: ...

    def head(self, task_id: str) -> TaskHead: ...

    def input_requests(self, task_id: str) -> list[InputRequest]: ...

    def answer(self, task_id: str, answers: Mapping[str, tuple[str, Any]]) -> Task: ...

    def watch(self) -> Watch: ...
