"""Steering, for whatever is served beside MCP: one task, all that a filter chooses, a queue. Blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from ..app import Backburner
from ..errors import NotAllowedNow, TaskNotFound
from ..lifecycle import TERMINAL, State
from ..service import TaskStatus
from ..task import Task
from ..task_request import MAX_KEY_CHARS, TaskRequest, check_queue, check_text
from .access import Access

Action = Literal["cancel", "retry", "delete"]

#: What a filter may choose for one request; who has more asks again.
MOST_AT_ONCE = 1000
_PAGE = 500
FIT: Mapping[Action, frozenset[State]] = {
    "cancel": frozenset(State) - TERMINAL,
    "retry": frozenset({State.FAILED, State.TIMED_OUT, State.CANCELLED}),
    "delete": TERMINAL,
}
#: What is tried once more where no state is named: who cancelled a task did not want it.
_WENT_WRONG = frozenset({State.FAILED, State.TIMED_OUT})


class Steering:
    """Changes what somebody may change. Raises NotPermitted, and what the TaskService raises."""

    def __init__(self, app: Backburner) -> None:
        self._app = app

    def request(
        self, access: Access, tool_name: str, inputs: Mapping[str, Any], **options: Any
    ) -> TaskRequest:
        """What to submit for who asks."""
        access.must_operate()
        return TaskRequest(tool_name, inputs, owner=access.principal, caller=access.caller, **options)

    def request_again(self, access: Access, task_id: str, inputs: Mapping[str, Any]) -> TaskRequest:
        """What to submit for a new task like this one, with other inputs; it belongs to the same owner."""
        access.must_operate()
        return self._app.service.request_again(task_id, inputs, owner=access.owner)

    def retry(self, access: Access, task_id: str) -> TaskStatus:
        access.must_operate()
        return self._app.service.retry(task_id, owner=access.owner)

    def cancel(self, access: Access, task_id: str, reason: str | None) -> TaskStatus:
        access.must_operate()
        return self._app.service.cancel(task_id, owner=access.owner, reason=reason)

    def delete(self, access: Access, task_id: str) -> None:
        access.must_operate()
        self._app.service.delete(task_id, owner=access.owner)

    def answer(self, access: Access, task_id: str, answers: Mapping[str, Mapping[str, Any]]) -> TaskStatus:
        access.must_operate()
        return self._app.service.answer_input(task_id, answers, owner=access.owner)

    # -- all that a filter chooses

    def act(
        self,
        access: Access,
        action: Action,
        filters: Mapping[str, Any],
        *,
        dry_run: bool,
        limit: int = MOST_AT_ONCE,
    ) -> dict[str, Any]:
        """Act on what a filter chooses, newest first, `limit` at most; or only count it."""
        access.must_operate()
        chosen = dict(filters)
        owner = access.chosen_owner(chosen.pop("owner", None), self._app.store)
        tasks = self._fitting(action, owner, chosen)
        found: list[Task] = []
        more = False
        for task in tasks:
            if len(found) == limit:
                more = True
                break
            found.append(task)
        left_alone = [] if dry_run else [one.task_id for one in found if not self._acted(action, one)]
        return {
            "action": action,
            "dry_run": dry_run,
            "matched": len(found),
            "done": 0 if dry_run else len(found) - len(left_alone),
            "left_alone": left_alone,
            "more": more,
        }

    def _fitting(self, action: Action, owner: str | None, filters: dict[str, Any]) -> Iterator[Task]:
        """The tasks that a filter chooses and that the action can be done to."""
        asked = frozenset(State(state) for state in filters.pop("states", ()))
        states = asked & FIT[action] if asked else (_WENT_WRONG if action == "retry" else FIT[action])
        cursor, service = None, self._app.service
        while states:
            page = service.list(owner=owner, states=[*states], limit=_PAGE, cursor=cursor, **filters)
            yield from page.tasks
            if (cursor := page.next_cursor) is None:
                return

    def _acted(self, action: Action, task: Task) -> bool:
        """Whether it could be done; another may have been faster."""
        service = self._app.service
        do = {"cancel": service.cancel, "retry": service.retry, "delete": service.delete}[action]
        try:
            do(task.task_id, owner=task.owner)
        except (NotAllowedNow, TaskNotFound):
            return False
        return True

    # -- queues

    def pause(self, access: Access, queue: str) -> None:
        access.must_steer_queues()
        self._app.store.pause_queue(check_queue(queue, self._queues()), access.principal)

    def resume(self, access: Access, queue: str) -> None:
        access.must_steer_queues()
        self._app.store.resume_queue(check_queue(queue, self._queues()))

    # -- what else is looked after

    def forget_clients(self, access: Access, name: str | None) -> dict[str, Any]:
        """Forget what was learned of a client's patience; without a name, of all clients'."""
        access.must_steer_all("forget what was learned of clients, which are everyone's")
        return {"forgotten": self._app.store.forget_time_outs(name)}

    def retry_webhook(self, access: Access, webhook_id: str) -> dict[str, Any]:
        """Have a message sent again. What is not there, or another's, is not retried."""
        access.must_operate()
        checked = check_text("webhook_id", webhook_id, MAX_KEY_CHARS)
        retried = self._app.store.retry_delivery(checked, access.owner)
        return {"webhook_id": webhook_id, "retried": retried}

    def _queues(self) -> list[str]:
        store = self._app.store
        known = [depth.queue for depth in store.queue_depths()]
        known += [paused.queue for paused in store.paused_queues()]
        return [*dict.fromkeys([*self._app.settings.queues, *known])]
