"""Workers as slots: by queue and host, with what each runs. Those that wait for work are only counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

#: For who is not told where workers are: they are all in one place.
_SOMEWHERE = "all hosts"


@dataclass(frozen=True, slots=True)
class Slot:
    """A worker with its task; without a task it is another owner's, without a worker it runs elsewhere."""

    worker: dict[str, Any] | None
    task: dict[str, Any] | None

    @property
    def name(self) -> str:
        return str((self.worker or self.task or {}).get("worker_id") or "")


@dataclass(slots=True)
class Host:
    """The slots of a queue on a host. `lost` are workers that are not heard any more."""

    name: str
    busy: list[Slot] = field(default_factory=list)
    idle: list[dict[str, Any]] = field(default_factory=list)
    lost: list[dict[str, Any]] = field(default_factory=list)

    @property
    def workers(self) -> int:
        return len(self.idle) + len({slot.name for slot in self.busy if slot.worker})


@dataclass(slots=True)
class QueueSlots:
    queue: dict[str, Any]
    hosts: list[Host]

    @property
    def busy(self) -> int:
        return sum(len(host.busy) for host in self.hosts)

    @property
    def idle(self) -> int:
        return sum(len(host.idle) for host in self.hosts)

    @property
    def trouble(self) -> str:
        """Why nothing goes on here; empty if it does, or if there is nothing to do."""
        queue = self.queue
        if queue["paused_at"]:
            return "paused"
        if queue["max_length"] and queue["queued"] >= queue["max_length"]:
            return "full"
        return "unattended" if queue["queued"] and not (queue["workers"] or queue["running"]) else ""


def last_heard(workers: Sequence[dict[str, Any]]) -> str | None:
    """When one of them was last heard; None for who is not told."""
    return max((one["last_heartbeat"] for one in workers if one["last_heartbeat"]), default=None)


def by_queue(
    queues: Sequence[dict[str, Any]], workers: Sequence[dict[str, Any]], tasks: Sequence[dict[str, Any]]
) -> list[QueueSlots]:
    """Each queue with its slots. `tasks` are those under way."""
    found = {one["queue"]: QueueSlots(one, []) for one in queues}
    for queue, slots in found.items():
        slots.hosts = hosts(
            [one for one in workers if one["queue"] == queue], [one for one in tasks if one["queue"] == queue]
        )
    return list(found.values())


def hosts(workers: Sequence[dict[str, Any]], tasks: Sequence[dict[str, Any]]) -> list[Host]:
    """These workers by host, and the tasks that none of them has: an engine elsewhere runs them.

    Tasks say who has them. What a worker says of itself may be of a moment before.
    """
    held: dict[str | None, list[dict[str, Any]]] = {}
    for task in reversed(tasks):
        held.setdefault(task["worker_id"], []).append(task)
    found: dict[str, Host] = {}
    for worker in workers:
        name = worker["host"] or _SOMEWHERE
        host = found.setdefault(name, Host(name))
        if not worker["alive"]:
            host.lost.append(worker)
            continue
        own = held.pop(worker["worker_id"], [])
        host.busy += [Slot(worker, task) for task in own]
        if not own:
            others = worker["state"] != "idle" and worker["current_task_id"] is None
            host.busy += [Slot(worker, None)] if others else []
            host.idle += [] if others else [worker]
    left = [Slot(None, task) for some in held.values() for task in some]
    ordered = sorted(found.values(), key=lambda host: (not host.workers, host.name))
    return [*ordered, *([Host("", left)] if left else [])]
