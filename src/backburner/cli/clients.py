"""`clients`: how long the hosts that call here wait, and how that is known."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from .output import print_json, say, show, span, table
from .place import Place
from .verb import verb


class Action(StrEnum):
    """What to do with them, but for showing them."""

    RESET = "reset"


def add_to(app: typer.Typer) -> None:
    verb(
        app,
        panel="Looking after a store",
        without=("owner", "all_owners"),
        examples=[
            "backburner clients -t lab.py",
            "backburner clients --json | jq '.clients[].wall_s'",
            "backburner clients reset my-host",
        ],
        remote=True,
    )(clients)


def clients(
    place: Place,
    action: Annotated[
        Action | None, typer.Argument(help="Forget what was learned", show_default=False)
    ] = None,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Of this client (default: all)", show_default=False)
    ] = None,
) -> None:
    """List the hosts that gave up on calls: their limits, and from where these are known.

    WALL is when a host gives up on a call whatever happens, IDLE when it hears nothing for so long;
    RESTARTS says whether progress begins that anew. FROM: settings count first, then what was learned, then
    the shipped table. SEEN is how many of its last ten time-outs are kept. `reset` forgets them; servers
    take note in seconds.
    """
    if action is Action.RESET:
        _reset(place, name)
    else:
        _show(place)


def _show(place: Place) -> None:
    found = place.operator.clients()
    if place.as_json:
        print_json({"clients": found})
        return
    if not found:
        say("No client has given up on a call.")
        return
    rows = [
        [
            one["name"],
            one["version"],
            one["transport"],
            _limit(one["wall_s"]),
            _limit(one["idle_s"]),
            "yes" if one["restarts"] else "no",
            one["source"],
            one["time_outs"],
        ]
        for one in found
    ]
    columns = ["NAME", "VERSION", "TRANSPORT", "WALL", "IDLE", "RESTARTS", "FROM", "SEEN"]
    show(table(columns, rows, whole=("NAME", "WALL", "FROM")))


def _reset(place: Place, name: str | None) -> None:
    gone = place.operator.forget_clients(name)
    if place.as_json:
        print_json({"forgotten": gone})
    elif gone:
        say(f"{gone} time-outs of {name or 'all clients'} are forgotten.")
    else:
        say(f"There is nothing to forget{'' if name is None else f' of {name}'}.")


def _limit(seconds: float | None) -> str:
    return "never" if seconds is None else span(seconds)
