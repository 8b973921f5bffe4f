"""`migrate`, `prune`: looking after a store."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Annotated

import typer

from ..lifecycle import TERMINAL
from .disk_use import COMPACT, needs_compacting
from .filters import every_task
from .listing import tasks_of_others
from .output import age, cell, print_json, say, show, size, state_cell, table
from .place import Place, Where, opened
from .store_copy import copy_store
from .verb import verb

if TYPE_CHECKING:
    from ..task import Task

#: Between two steps, other writers get in.
_PAUSE_S = 0.005


def add_to(app: typer.Typer) -> None:
    verb(
        app,
        panel="Looking after a store",
        without=("owner", "all_owners"),
        examples=[
            "backburner migrate --store sqlite:///lab.db",
            "backburner migrate --store postgresql://db/tasks",
            "backburner migrate -t lab.py --to postgresql://db/tasks     # copies all of it, with its files",
        ],
    )(migrate)
    verb(
        app,
        panel="Looking after a store",
        examples=[
            "backburner prune -t lab.py                       # only what is past its time to live",
            "backburner prune --older-than 30d --dry-run",
            "backburner prune --older-than 1d --all-owners",
            "backburner prune --compact                       # a store of an earlier release gets smaller",
        ],
    )(prune)


def migrate(
    where: Where,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Copy the store into this one: a new database, or a new SQLite file"
        ),
    ] = None,
    data_dir: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="With --to: where its files go (default: where the new store looks)"
        ),
    ] = None,
) -> None:
    """Make the store, or bring it up to date; with --to, copy it into another.

    Servers and workers do the first too when they start; a store that is newer than this program is
    refused and left as it is.

    With --to, everything that a SQLite store holds is copied into an empty store: ids, links and cursors
    go on working. Stop its servers and its supervisor first. All is read back, by count and by checksum; if
    it fails or is interrupted, nothing of it is kept. The old store is left as it is.
    """
    if to is None and data_dir is not None:
        raise typer.BadParameter("--data-dir goes with --to, which says where to copy to")
    with opened(where, create=to is None) as place:
        if to is not None:
            copy_store(place, to, data_dir)
            return
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
    compact: Annotated[
        bool, typer.Option("--compact", help="Write a SQLite file anew; all writers wait meanwhile")
    ] = False,
) -> None:
    """Remove what is not needed any more, and give its room back to the disk.

    Without options this is one round of the keeper: tasks past their time to live expire, and their
    files go. With --older-than, finished tasks of yours are forgotten before that.

    A SQLite file that an earlier release made gives its room back only when it is written anew, with
    --compact: once, while as much is free on its disk as twice what it holds.
    """
    from ..times import duration_s

    forgotten: list[Task] = []
    if older_than is not None:
        before = int((time.time() - duration_s(older_than, "older_than")) * 1000)
        finished = every_task(place, {"states": sorted(TERMINAL)})
        forgotten = [
            task for task in finished if task.completed_at is not None and task.completed_at < before
        ]
    size_before = place.store.size()
    swept: dict[str, list[str]] = {}
    if not dry_run:
        for task in forgotten:
            place.service.delete(task.task_id, owner=place.owner)
        swept = _sweep(place)
        _give_back(place, compact)
    now = place.store.size()
    freed = max(0, size_before.bytes - now.bytes)
    if place.as_json:
        room = {"freed_bytes": freed, "store_bytes": now.bytes}
        ids = [task.task_id for task in forgotten]
        print_json({"forgotten": ids, **swept, **room, "dry_run": dry_run})
        return
    if forgotten:
        rows = [[task.task_id, state_cell(task.state), f"{age(task.completed_at)} ago"] for task in forgotten]
        show(table(["TASK", "STATE", "FINISHED"], rows, whole=("TASK",)))
    done = "would be forgotten" if dry_run else "forgotten"
    counts = "".join(f", {len(ids)} {name}" for name, ids in swept.items())
    say(f"{len(forgotten)} {done}{counts}. The store has {size(now.bytes)}, {size(freed)} less than before.")
    if older_than is not None and (others := tasks_of_others(place)):
        say(f"{others} left out: --all-owners", "dim")
    if not dry_run and needs_compacting(now):
        say(f"{size(now.free_bytes)} of that are free. The file is of an earlier release: {COMPACT}.")


def _give_back(place: Place, compact: bool) -> None:
    store = place.store
    if compact:
        while store.pack_logs(finished_before=store.now_ms()):
            pass
        store.compact()
    while store.give_back(keep_bytes=0):
        time.sleep(_PAUSE_S)


def _sweep(place: Place) -> dict[str, list[str]]:
    """One round of the keeper, unless a supervisor's keeper is at it anyway."""
    from ..artifacts import Removal
    from ..keeper import Keeper

    removal = Removal(place.artifacts)
    keeper = Keeper(place.store, place.settings, f"prune_{os.getpid()}", remove_files=removal.soon)
    swept = keeper.sweep()
    removal.catch_up()
    if swept is None:
        say("A keeper is at work on this store already, or was a moment ago.")
        return {}
    return {"expired": swept.expired, "purged": swept.purged}
