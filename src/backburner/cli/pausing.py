"""`pause`, `resume`: letting no task of a queue begin for a while."""

from __future__ import annotations

from typing import Annotated

import typer

from ..task import LOCAL_OWNER
from ..task_request import check_queue
from .output import print_json, say
from .overview import queues_of
from .place import Place
from .verb import verb

Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue", show_default=False)]
_WITHOUT = ("owner", "all_owners")


def add_to(app: typer.Typer) -> None:
    panel = "Looking after a store"
    verb(app, panel=panel, without=_WITHOUT, examples=["backburner pause cpu_heavy -t lab.py"])(pause)
    verb(app, panel=panel, without=_WITHOUT, examples=["backburner resume cpu_heavy -t lab.py"])(resume)


def pause(place: Place, queue: Queue) -> None:
    """Let no task of a queue begin, on any host, until it is resumed; those that were begun go on."""
    place.store.pause_queue(check_queue(queue, _known(place)), LOCAL_OWNER)
    _say(place, queue, paused=True)


def resume(place: Place, queue: Queue) -> None:
    """Let the tasks of a paused queue begin again."""
    place.store.resume_queue(check_queue(queue, _known(place)))
    _say(place, queue, paused=False)


def _known(place: Place) -> list[str]:
    return [one["queue"] for one in queues_of(place)]


def _say(place: Place, queue: str, *, paused: bool) -> None:
    if place.as_json:
        print_json({"queue": queue, "paused": paused})
    else:
        say(f"{queue} is paused; its tasks wait until `resume`." if paused else f"{queue} goes on.")
