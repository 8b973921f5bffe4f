"""OperatorService: queues, workers, statistics, tools, clients and webhooks of a local store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from ..core.lifecycle import TERMINAL, State
from ..core.requests import MAX_KEY_CHARS, check_queue, check_text
from ..core.task import LOCAL_OWNER, Task
from ..errors import NotAllowedNow, TaskNotFound
from . import monitoring
from .protocol import Record
from .records import (
    delivery_record,
    queue_records,
    state_record,
    supervisor_record,
    tool_record,
    worker_records,
)

if TYPE_CHECKING:
    from ..engines.health import Supervision
    from ..tools.spec import Registry
    from .tasks import TaskService

Action = Literal["cancel", "retry", "delete"]

#: Most tasks that one bulk action changes.
MAX_BULK = 1000
_PAGE = 500
#: States in which an action is possible.
ACTION_STATES: Mapping[Action, frozenset[State]] = {
    "cancel": frozenset(State) - TERMINAL,
    "retry": frozenset({State.FAILED, State.TIMED_OUT, State.CANCELLED}),
    "delete": TERMINAL,
}
#: Without a state in the filter, cancelled tasks are not retried: a cancel was intended.
_RETRIED_BY_DEFAULT = frozenset({State.FAILED, State.TIMED_OUT})
_HOUR_MS = 3_600_000
#: Fields of workers and supervisors that reveal neither hosts nor processes.
_PUBLIC_WORKER = ("worker_id", "queue", "state", "alive", "current_task_id")
_PUBLIC_SUPERVISOR = ("state", "trouble")


class OperatorService:
    """Operator reads and actions on one store. Blocks; safe to call from many threads.

    `supervision` and `clients` come from packages above this one. `tools` returns the app's tools.
    """

    def __init__(
        self,
        service: TaskService,
        *,
        tools: Callable[[], Registry],
        supervision: Callable[[], Supervision],
        clients: Callable[[], list[Record]],
    ) -> None:
        self._service, self._store, self._settings = service, service.store, service.settings
        self._tools, self._supervision, self.clients = tools, supervision, clients

    # -- monitoring

    def queues(self) -> list[Record]:
        return queue_records(self._store, self._settings, self._supervision().live)

    def workers(self, owner: str | None = None, *, hosts: bool = True) -> list[Record]:
        """Return all workers; task ids only of tasks of `owner`, machines only with `hosts`."""
        found = worker_records(self._store, self._supervision().live)
        if owner is not None:
            heads = self._store.heads([one["current_task_id"] for one in found if one["current_task_id"]])
            for one in found:
                head = heads.get(one["current_task_id"])
                one["current_task_id"] = head.task_id if head and head.owner == owner else None
        return found if hosts else [_public(one, _PUBLIC_WORKER) for one in found]

    def supervisor(self, *, hosts: bool = True) -> Record:
        found = supervisor_record(self._supervision())
        return found if hosts else _public(found, _PUBLIC_SUPERVISOR)

    def states(self, owner: str | None = None) -> dict[str, int]:
        return state_record(self._store.count_states(owner))

    def runtimes(self, owner: str | None = None) -> list[Record]:
        return monitoring.runtimes(self._service, owner)

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
        end = self._store.now_ms() + 1 if until is None else until
        begin = end - _HOUR_MS if since is None else since
        filters = {"owner": owner, "tool_name": tool_name, "queue": queue}
        return monitoring.statistics(self._store, begin, end, int(every_s * 1000), **filters)

    def overview(self, owner: str | None = None, *, hosts: bool = True) -> Record:
        return {
            "states": self.states(owner),
            "queues": self.queues(),
            "workers": self.workers(owner, hosts=hosts),
            "statistics": self.statistics(owner),
        }

    def tools(self) -> list[Record]:
        return [tool_record(spec, self._settings) for spec in self._tools()]

    def input_schema(self, tool_name: str) -> dict[str, Any]:
        return dict(self._tools().get(tool_name).input_schema)

    def webhooks(self, owner: str | None = None) -> list[Record]:
        return [delivery_record(one) for one in self._store.deliveries(owner)]

    # -- actions

    def pause(self, queue: str, *, by: str = LOCAL_OWNER) -> None:
        self._store.pause_queue(self._checked_queue(queue), by)

    def resume(self, queue: str) -> None:
        self._store.resume_queue(self._checked_queue(queue))

    def _checked_queue(self, queue: str) -> str:
        return check_queue(queue, [one["queue"] for one in queue_records(self._store, self._settings, ())])

    def forget_clients(self, name: str | None = None) -> int:
        return self._store.forget_time_outs(name)

    def retry_webhook(self, webhook_id: str, owner: str | None = None) -> bool:
        return self._store.retry_delivery(check_text("webhook_id", webhook_id, MAX_KEY_CHARS), owner)

    def act(
        self,
        action: Action,
        owner: str | None,
        filters: Mapping[str, Any],
        *,
        dry_run: bool = False,
        limit: int = MAX_BULK,
    ) -> Record:
        """Apply an action to up to `limit` tasks of a filter, newest first. `dry_run` only counts."""
        matching = self._matching(action, owner, dict(filters))
        found = [*islice(matching, limit)]
        more = next(matching, None) is not None
        skipped = [] if dry_run else [one.task_id for one in found if not self._apply(action, one)]
        return {
            "action": action,
            "dry_run": dry_run,
            "matched": len(found),
            "done": 0 if dry_run else len(found) - len(skipped),
            "left_alone": skipped,
            "more": more,
        }

    def _matching(self, action: Action, owner: str | None, filters: dict[str, Any]) -> Iterator[Task]:
        possible = ACTION_STATES[action]
        given = frozenset(State(state) for state in filters.pop("states", ()))
        states = given & possible if given else (_RETRIED_BY_DEFAULT if action == "retry" else possible)
        cursor = None
        while states:
            page = self._service.list(owner=owner, states=[*states], limit=_PAGE, cursor=cursor, **filters)
            yield from page.tasks
            if (cursor := page.next_cursor) is None:
                return

    def _apply(self, action: Action, task: Task) -> bool:
        service = self._service
        apply = {"cancel": service.cancel, "retry": service.retry, "delete": service.delete}[action]
        try:
            apply(task.task_id, owner=task.owner)
        except (NotAllowedNow, TaskNotFound):  # the task has changed meanwhile
            return False
        return True


def _public(whole: Record, names: tuple[str, ...]) -> Record:
    return {name: value if name in names else None for name, value in whole.items()}
