"""Who works on a store: the supervisor of this host, and every worker that was heard lately."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..lifecycle import LEASED, State
from ..short_names import owner_name
from ..times import iso
from .output import age, say

if TYPE_CHECKING:
    from ..health import Supervision
    from ..task import Task, Worker
    from .place import Place


def supervision(place: Place) -> Supervision:
    """Who works on the store of this place."""
    from ..health import supervision_of

    return supervision_of(place.store, place.settings, place.data_dir)


def live_workers(place: Place) -> list[Worker]:
    """The workers, of any host, that were heard within the grace time and are not known to be dead."""
    return supervision(place).live


def leased_tasks(place: Place) -> Iterator[Task]:
    """Every task that a worker has, of any owner."""
    from ..store import TaskQuery

    before = None
    while True:
        page = place.store.page(TaskQuery(states=LEASED, before_seq=before, limit=500))
        yield from page
        if len(page) < 500:
            return
        before = page[-1].seq


@dataclass(frozen=True, slots=True)
class Asking:
    """A task that waits for an answer: since when, and the command that answers."""

    task: Task
    since: int
    command: str

    def record(self) -> dict[str, str]:
        return {"task_id": self.task.task_id, "asked_at": iso(self.since), "command": self.command}

    @property
    def message(self) -> str:
        return f"{self.task.task_id} ({self.task.tool_name}) has waited {age(self.since)} for an answer"


def asking_tasks(place: Place) -> Iterator[Asking]:
    """The tasks that wait for an answer, of any owner."""
    for task in leased_tasks(place):
        if task.state is State.INPUT_REQUIRED:
            asked = [
                one.asked_at for one in place.store.input_requests(task.task_id) if one.answered_at is None
            ]
            where = dataclasses.replace(place.where, owner=owner_name(task.owner))
            command = f"backburner answer {task.task_id}{where.options}"
            yield Asking(task, min(asked, default=task.updated_at), command)


def say_if_nobody_works(place: Place, target: str) -> None:
    """Tell the user when a task will wait until somebody starts a worker."""
    found = supervision(place)
    if found.standing.state == "absent" and not found.live:
        say(f"Nobody works on this store now; start: backburner worker {as_written(target)}", "yellow")


def as_written(target: str) -> str:
    """A target as a person would write it."""
    place, _, name = target.partition("#")
    return place.partition(":")[2] + (f":{name[1:]}" if name.startswith(".") else "")
