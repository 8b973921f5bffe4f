"""`pause`, `resume`: letting no task of a queue begin for a while."""

from __future__ import annotations

from typing import Annotated

import typer

from .output import print_json, say
from .place import Place
from .verb import verb

Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue", show_default=False)]
_WITHOUT = ("owner", "all_owners")


def add_to(app: typer.Typer) -> None:
    panel = "Looking after a store"
    for act in (pause, resume):
        examples = [f"backburner {act.__name__} cpu_heavy -t lab.py"]
        verb(app, panel=panel, without=_WITHOUT, examples=examples, remote=True)(act)


def pause(place: Place, queue: Queue) -> None:
    """Let no task of a queue begin, on any host, until it is resumed; those that were begun go on."""
    place.operator.pause(queue)
    _say(place, queue, paused=True)


def resume(place: Place, queue: Queue) -> None:
    """Let the tasks of a paused queue begin again."""
    place.operator.resume(queue)
    _say(place, queue, paused=False)


def _say(place: Place, queue: str, *, paused: bool) -> None:
    if place.as_json:
        print_json({"queue": queue, "paused": paused})
    else:
        say(f"{queue} is paused; its tasks wait until `resume`." if paused else f"{queue} goes on.")
