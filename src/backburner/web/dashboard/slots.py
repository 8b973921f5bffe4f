"""Workers as slots: by queue and host, with what each runs. Those that wait for work are only counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any


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
        return len(self.idle) + sum(1 for slot in self.busy if slot.worker)


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
    """These workers by host, and the tasks that none has: they wait for an answer, or run elsewhere."""
    left = {one["task_id"]: one for one in tasks}
    found: dict[str, Host] = {}
    for worker in workers:
        host = found.setdefault(worker["host"], Host(worker["host"]))
        if not worker["alive"]:
            host.lost.append(worker)
        elif worker["state"] == "idle":
            host.idle.append(worker)
        else:
            host.busy.append(Slot(worker, left.pop(worker["current_task_id"], None)))
    return [*sorted(found.values(), key=lambda host: host.name), *_elsewhere(left.values())]


def _elsewhere(tasks: Any) -> Iterator[Host]:
    if tasks:
        yield Host("", [Slot(None, task) for task in tasks])
