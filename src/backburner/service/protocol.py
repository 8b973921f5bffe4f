"""Protocols of the two services, implemented by the local store and by the HTTP client (`web/remote.py`).

`TaskServiceProtocol` covers tasks, `OperatorServiceProtocol` everything else: queues, workers, statistics,
tools, clients and webhooks. Operator methods return the JSON records of the HTTP API.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ..core.requests import TaskRequest
    from ..core.task import Artifact, Task
    from .cursors import TaskPage
    from .tasks import LogPage, TaskHistory, TaskResult, TaskStatus

Record = dict[str, Any]


class ChangeSource(Protocol):
    def listen(self, topic: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back after each change of a topic (`task:<task_id>`). Return a function that stops it."""
        ...


class TaskServiceProtocol(Protocol):
    """Task operations. `owner=None` stands for every owner; a remote server restricts it by the token."""

    @property
    def changes(self) -> ChangeSource: ...

    def submit_request(self, request: TaskRequest) -> TaskStatus: ...

    def ids(self, beginning: str, owner: str | None = None, limit: int = 10) -> list[str]:
        """Return ids of tasks that start with `beginning`."""
        ...

    def list(
        self,
        *,
        owner: str | None = ...,
        states: Sequence[str] = (),
        tool_name: str | None = None,
        tags_any: Sequence[str] = (),
        parent_id: str | None = None,
        id_beginning: str | None = None,
        submitted_after: int | None = None,
        oldest_first: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> TaskPage: ...

    def view(self, task: Task) -> TaskStatus:
        """Return the status of a task from the last `list`."""
        ...

    def status(self, task_id: str, *, owner: str | None = ...) -> TaskStatus: ...

    def history(self, task_id: str, *, owner: str | None = ...) -> TaskHistory: ...

    def logs(
        self,
        task_id: str,
        *,
        owner: str | None = ...,
        cursor: str | None = None,
        limit: int = 200,
        operator: bool = False,
    ) -> LogPage: ...

    def artifacts(self, task_id: str, *, owner: str | None = ...) -> Sequence[Artifact]: ...

    def result(self, task_id: str, *, owner: str | None = ...) -> TaskResult: ...

    def cancel(self, task_id: str, *, owner: str | None = ..., reason: str | None = None) -> TaskStatus: ...

    def retry(self, task_id: str, *, owner: str | None = ...) -> TaskStatus: ...

    def delete(self, task_id: str, *, owner: str | None = ...) -> None: ...

    def answer_input(
        self, task_id: str, answers: Mapping[str, Mapping[str, Any]], *, owner: str | None = ...
    ) -> TaskStatus: ...

    def wait(self, task_id: str, timeout_s: float, *, owner: str | None = ...) -> TaskStatus: ...

    def close(self) -> None: ...


class OperatorServiceProtocol(Protocol):
    """Queues, workers, statistics, tools, clients and webhooks, as JSON records."""

    def queues(self) -> list[Record]: ...

    def workers(self) -> list[Record]:
        """Return every known worker; `alive` tells which ones still send heartbeats."""
        ...

    def supervisor(self) -> Record: ...

    def states(self, owner: str | None = None) -> dict[str, int]:
        """Return the number of tasks in each state."""
        ...

    def runtimes(self, owner: str | None = None) -> list[Record]:
        """Return durations of each tool's latest successful runs."""
        ...

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
        """Return completions between two times (default: the last hour), in intervals of `every_s`."""
        ...

    def overview(self, owner: str | None = None) -> Record:
        """Return states, queues, workers and the statistics of the last hour."""
        ...

    def tools(self) -> list[Record]: ...

    def input_schema(self, tool_name: str) -> dict[str, Any]:
        """Raise UnknownTool."""
        ...

    def clients(self) -> list[Record]:
        """Return clients that timed out on a call, with the time limits known or learned for each."""
        ...

    def webhooks(self, owner: str | None = None) -> list[Record]:
        """Return pending and failed webhook deliveries."""
        ...

    def pause(self, queue: str) -> None:
        """Pause a queue. Raise UnknownQueue, as `resume` does."""
        ...

    def resume(self, queue: str) -> None: ...

    def forget_clients(self, name: str | None = None) -> int:
        """Delete learned timeouts of one client or of all. Return the number deleted."""
        ...

    def retry_webhook(self, webhook_id: str, owner: str | None = None) -> bool:
        """Send a delivery again. Return False if there is none with this id."""
        ...
