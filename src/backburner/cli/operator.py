"""What an operator sees and does beside tasks: queues, workers, tools, clients, webhooks.

A place has one, whether it is a store here or a server elsewhere (`web/remote_operator.py`). What it gives
are JSON values, the same as the API's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ..errors import UnknownTool
from ..records import (
    delivery_record,
    queue_records,
    state_record,
    supervisor_record,
    tool_record,
    worker_records,
)
from ..task import LOCAL_OWNER
from ..task_request import check_queue

if TYPE_CHECKING:
    from ..health import Supervision
    from .place import Place


class Operator(Protocol):
    def queues(self) -> list[dict[str, Any]]: ...

    def workers(self) -> list[dict[str, Any]]:
        """All that are known of; `alive` says which of them are there."""
        ...

    def supervisor(self) -> dict[str, Any]: ...

    def states(self, owner: str | None) -> dict[str, int]:
        """How many tasks there are in each state."""
        ...

    def runtimes(self, owner: str | None) -> list[dict[str, Any]]:
        """How long the latest successes of each tool took."""
        ...

    def tools(self) -> list[dict[str, Any]]: ...

    def input_schema(self, tool_name: str) -> dict[str, Any]:
        """Raises UnknownTool."""
        ...

    def clients(self) -> list[dict[str, Any]]: ...

    def webhooks(self, owner: str | None) -> list[dict[str, Any]]: ...

    def pause(self, queue: str) -> None:
        """Raises UnknownQueue, as `resume` does."""
        ...

    def resume(self, queue: str) -> None: ...

    def forget_clients(self, name: str | None) -> int:
        """Forget what was learned of a client, or with None of all; how many time-outs that were."""
        ...

    def retry_webhook(self, webhook_id: str, owner: str | None) -> bool:
        """Have a message sent again; False if there is none."""
        ...


class LocalOperator:
    """The operator of a store that is opened here, and of its app if there is one."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def queues(self) -> list[dict[str, Any]]:
        return queue_records(self._place.store, self._place.settings, self._supervision().live)

    def workers(self) -> list[dict[str, Any]]:
        return worker_records(self._place.store, self._supervision().live)

    def supervisor(self) -> dict[str, Any]:
        return supervisor_record(self._supervision())

    def _supervision(self) -> Supervision:
        from ..health import supervision_of

        return supervision_of(self._place.store, self._place.settings, self._place.data_dir)

    def states(self, owner: str | None) -> dict[str, int]:
        return state_record(self._place.store.count_states(owner))

    def runtimes(self, owner: str | None) -> list[dict[str, Any]]:
        from ..runtimes import runtimes

        return runtimes(self._place.service, owner)

    def tools(self) -> list[dict[str, Any]]:
        app = self._place.app
        if app is None:
            return []
        self._learn_tools()
        return [tool_record(spec, app.settings) for spec in app.tools]

    def input_schema(self, tool_name: str) -> dict[str, Any]:
        if self._place.app is None:
            raise UnknownTool(tool_name=tool_name, known="none")
        self._learn_tools()
        return dict(self._place.app.tools.get(tool_name).input_schema)

    def _learn_tools(self) -> None:
        from .place import learn_tools

        assert self._place.app is not None, "it has tools"
        learn_tools(self._place.app)

    def clients(self) -> list[dict[str, Any]]:
        if not self._place.store.time_outs():
            return []
        from ..web.reading import client_records  # which takes its time

        return client_records(self._place.store, self._place.settings)

    def webhooks(self, owner: str | None) -> list[dict[str, Any]]:
        return [delivery_record(one) for one in self._place.store.deliveries(owner)]

    def pause(self, queue: str) -> None:
        self._place.store.pause_queue(self._checked(queue), LOCAL_OWNER)

    def resume(self, queue: str) -> None:
        self._place.store.resume_queue(self._checked(queue))

    def _checked(self, queue: str) -> str:
        return check_queue(queue, [one["queue"] for one in self.queues()])

    def forget_clients(self, name: str | None) -> int:
        return self._place.store.forget_time_outs(name)

    def retry_webhook(self, webhook_id: str, owner: str | None) -> bool:
        return self._place.store.retry_delivery(webhook_id, owner)
