"""Who works on a store: the supervisor of this host, and every worker that was heard lately."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .output import say

if TYPE_CHECKING:
    from ..health import Supervision
    from ..task import Worker
    from .place import Place


def supervision(place: Place) -> Supervision:
    """Who works on the store of this place."""
    from ..health import supervision_of

    return supervision_of(place.store, place.settings, place.data_dir)


def live_workers(place: Place) -> list[Worker]:
    """The workers, of any host, that were heard within the grace time and are not known to be dead."""
    return supervision(place).live


def say_if_nobody_works(place: Place, target: str) -> None:
    """Tell the user when a task will wait until somebody starts a worker."""
    found = supervision(place)
    if found.standing.state == "absent" and not found.live:
        say(f"Nobody works on this store now; start: backburner worker {as_written(target)}", "yellow")


def as_written(target: str) -> str:
    """A target as a person would write it."""
    place, _, name = target.partition("#")
    return place.partition(":")[2] + (f":{name[1:]}" if name.startswith(".") else "")
