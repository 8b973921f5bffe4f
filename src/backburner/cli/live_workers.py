"""Who works on a store: the supervisor of this host, and every worker that was heard lately."""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING, Any

from .output import say

if TYPE_CHECKING:
    from ..task import Worker
    from .place import Place


def supervisor_of_this_host(place: Place) -> dict[str, Any] | None:
    """What the holder of the supervisor's lock says about itself; None when there is none."""
    from ..engines.local import SupervisorLock

    return SupervisorLock(place.data_dir).holder()


def live_workers(place: Place) -> list[Worker]:
    """The workers, of any host, that were heard within the grace time and are not known to be dead.

    Those of a supervisor whose lock is free are dead, however lately they were heard.
    """
    oldest = (time.time() - place.settings.supervisor.lease_grace_s) * 1000
    dead = _ids_of_the_dead(place)
    return [
        worker
        for worker in place.store.workers()
        if worker.last_heartbeat >= oldest and not (dead and worker.supervisor_id.startswith(dead))
    ]


def _ids_of_the_dead(place: Place) -> str | None:
    """How the ids of all that ever held this host's lock begin, when nobody holds it."""
    from ..engines.local import SupervisorLock

    lock = SupervisorLock(place.data_dir)
    if lock.holder() is not None:
        return None
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return f"sup_{json.loads(lock.path.read_text())['place']}_"
    return None


def say_if_nobody_works(place: Place, target: str) -> None:
    """Tell the user when a task will wait until somebody starts a worker."""
    if supervisor_of_this_host(place) is None and not live_workers(place):
        say(f"Nobody works on this store now; start: backburner worker {as_written(target)}", "yellow")


def as_written(target: str) -> str:
    """A target as a person would write it."""
    place, _, name = target.partition("#")
    return place.partition(":")[2] + (f":{name[1:]}" if name.startswith(".") else "")
