"""`migrate`, `prune`: looking after a store."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Annotated

import typer

from ..lifecycle import TERMINAL
from .filters import every_task
from .output import age, cell, print_json, say, show, state_cell, table
from .place import Place
from .verb import verb

if TYPE_CHECKING:
    from ..task import Task


def add_to(app: typer.Typer) -> None:
    verb(
        app,
        panel="Looking after a store",
        create=True,
        without=("owner", "all_owners"),
        examples=[
            "backburner migrate --store sqlite:///lab.db",
            "backburner migrate --store postgresql://db/tasks",
        ],
    )(migrate)
    verb(
        app,
        panel="Looking after a store",
        examples=[
            "backburner prune -t lab.py                       # only what is past its time to live",
            "backburner prune --older-than 30d --dry-run",
            "backburner prune --older-than 1d --all-owners",
        ],
    )(prune)


def migrate(place: Place) -> None:
    """Make the store, or bring it up to date.

    Servers and workers do this too when they start; a store that is newer than this program is
    refused and left as it is.
    """
    version = place.store.version()
    if place.as_json:
        print_json({"store": place.store.url, "version": version})
    else:
        show(cell(f"{place.store.url} is up to date, at version {version}."))


def prune(
    place: Place,
    older_than: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Also forget tasks that finished longer ago, such as 30d"),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what --older-than would forget")
    ] = False,
) -> None:
    """Remove what is not needed any more.

    Without options this is one round of the keeper: tasks past their time to live expire, and their
    files go. With --older-than, finished tasks of yours are forgotten before that.
    """
    from ..times import duration_s

    forgotten: list[Task] = []
    if older_than is not None:
        before = int((time.time() - duration_s(older_than, "older_than")) * 1000)
        finished = every_task(place, {"states": sorted(TERMINAL)})
        forgotten = [
            task for task in finished if task.completed_at is not None and task.completed_at < before
        ]
    if not dry_run:
        for task in forgotten:
            place.service.delete(task.task_id, owner=place.owner)
    swept = {} if dry_run else _sweep(place)
    if place.as_json:
        print_json({"forgotten": [task.task_id for task in forgotten], **swept, "dry_run": dry_run})
        return
    if forgotten:
        rows = [[task.task_id, state_cell(task.state), f"{age(task.completed_at)} ago"] for task in forgotten]
        show(table(["TASK", "STATE", "FINISHED"], rows, whole=("TASK",)))
    done = "would be forgotten" if dry_run else "forgotten"
    counts = "".join(f", {len(ids)} {name}" for name, ids in swept.items())
    say(f"{len(forgotten)} {done}{counts}.")


def _sweep(place: Place) -> dict[str, list[str]]:
    """One round of the keeper, unless a supervisor's keeper is at it anyway."""
    from ..folders import tasks_folder
    from ..keeper import Keeper

    folder = tasks_folder(place.data_dir)
    keeper = Keeper(place.store, place.settings, f"prune_{os.getpid()}", tasks_folder=folder)
    swept = keeper.sweep()
    if swept is None:
        say("A supervisor keeps this store in order already.")
        return {}
    return {"expired": swept.expired, "purged": swept.purged}
