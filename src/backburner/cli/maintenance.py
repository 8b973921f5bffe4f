"""Commands that maintain a store: `migrate`, `prune`, `webhooks` and `client`."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from ..core.lifecycle import TERMINAL
from ..core.times import duration_s, from_iso
from .command import OPERATIONS, Exit, command, every_task, group
from .output import age, cell, moment, print_json, say, show, size, state_cell, stderr, table
from .place import Place, Where, opened
from .tasks import hidden_tasks

if TYPE_CHECKING:
    from ..core.task import Task
    from .store_copy import StoreCopy


#: Pause between two steps of freeing disk space, so that other writers can commit.
_PAUSE_S = 0.005


@command(
    panel=OPERATIONS,
    owner=False,
    examples=[
        "backburner migrate --store sqlite:///lab.db",
        "backburner migrate --store postgresql://db/tasks",
        "backburner migrate -t lab.py --to postgresql://db/tasks     # copies tasks and files",
    ],
)
def migrate(
    where: Where,
    to: Annotated[str | None, typer.Option(metavar="URL", help="Copy the store into this one")] = None,
    data_dir: Annotated[str | None, typer.Option(metavar="FOLDER", help="With --to: for its files")] = None,
) -> None:
    """Create a store, or migrate it to the current schema; with --to, copy it into another store.

    Servers and workers also create and migrate their store when they start. A store with a newer schema is
    refused.

    --to copies a SQLite store into an empty store. Task ids, links and cursors stay valid. Stop the servers
    and the supervisor first. Counts and checksums are verified; a failed copy leaves nothing behind, and the
    old store stays as it is.
    """
    if to is None and data_dir is not None:
        raise typer.BadParameter("--data-dir needs --to")
    with opened(where, create=to is None) as place:
        if to is not None:
            _copy(place, to, data_dir)
            return
        version = place.store.version()
        if place.as_json:
            print_json({"store": place.store.url, "version": version})
        else:
            show(cell(f"{place.store.url} is up to date, at version {version}."))


def _copy(place: Place, to: str, data_dir: str | None) -> None:
    from .store_copy import copy_store

    settings = place.settings
    if data_dir is not None:
        settings = dataclasses.replace(settings, data_dir=data_dir)
    began = time.monotonic()
    try:
        with _progress(place) as progress:
            copy = copy_store(place.store, settings, place.data_dir, to, progress)
    except KeyboardInterrupt:
        say("Interrupted: nothing was copied.", "yellow")
        raise typer.Exit(Exit.INTERRUPTED) from None
    if place.as_json:
        print_json(_copy_record(place, copy))
        return
    tasks, rows = copy.tables["tasks"].rows, sum(one.rows for one in copy.tables.values())
    files = f"{copy.files.files:,} files ({size(copy.files.bytes)})"
    took = f"{time.monotonic() - began:.1f} s"
    show(
        cell(f"Copied {tasks:,} tasks ({rows:,} rows) and {files} to {copy.url} in {took}."),
        cell("Every row and every file was read back: counts and checksums agree."),
        cell(f"{place.store.url} is unchanged. Do not use it any more; delete it when you are ready."),
    )
    say("Next, set the new store in the app, in backburner.toml or in the environment:")
    say(f"  BACKBURNER_STORE={copy.url}    # with its password, if it has one")
    if data_dir is not None:
        say(f"  BACKBURNER_DATA_DIR={copy.data_dir}")
    say(f"Then start your servers and workers again. The files are in {copy.data_dir}.")


def _copy_record(place: Place, copy: StoreCopy) -> dict[str, object]:
    return {
        "store": place.store.url,
        "to": copy.url,
        "data_dir": str(copy.data_dir),
        "tables": {name: dataclasses.asdict(one) for name, one in copy.tables.items()},
        **dataclasses.asdict(copy.files),
    }


@contextmanager
def _progress(place: Place) -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar on a terminal, a line for each finished part in a pipe, and nothing with --json."""
    if place.as_json:
        yield lambda doing, done, total: None
    elif stderr().is_terminal:
        from rich.progress import Progress

        with Progress(console=stderr(), transient=True) as bar:
            task = bar.add_task("")
            yield lambda doing, done, total: bar.update(task, description=doing, completed=done, total=total)
    else:
        yield lambda doing, done, total: say(f"{doing}: {done:,}") if done and done == total else None


@command(
    panel=OPERATIONS,
    examples=[
        "backburner prune -t lab.py                       # expired tasks",
        "backburner prune --older-than 30d --dry-run",
        "backburner prune --older-than 1d --all-owners",
    ],
)
def prune(
    place: Place,
    older_than: Annotated[
        str | None, typer.Option(metavar="TIME", help="Also delete tasks that finished before, such as 30d")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the tasks of --older-than")] = False,
) -> None:
    """Delete expired tasks with their files, and free their disk space."""
    old: list[Task] = []
    if older_than is not None:
        before = int((time.time() - duration_s(older_than, "older_than")) * 1000)
        finished = every_task(place, {"states": sorted(TERMINAL)})
        old = [task for task in finished if task.completed_at is not None and task.completed_at < before]
    size_before = place.store.size()
    swept: dict[str, list[str]] = {}
    if not dry_run:
        for task in old:
            place.service.delete(task.task_id, owner=place.owner)
        swept = _sweep(place)
        while place.store.give_back(keep_bytes=0):
            time.sleep(_PAUSE_S)
    now = place.store.size()
    freed = max(0, size_before.bytes - now.bytes)
    if place.as_json:
        ids = [task.task_id for task in old]
        sizes = {"freed_bytes": freed, "store_bytes": now.bytes}
        print_json({"forgotten": ids, **swept, **sizes, "dry_run": dry_run})
        return
    if old:
        rows = [[task.task_id, state_cell(task.state), f"{age(task.completed_at)} ago"] for task in old]
        show(table(["TASK", "STATE", "FINISHED"], rows, whole=("TASK",)))
    done = "would be deleted" if dry_run else "deleted"
    counts = "".join(f", {len(ids)} {name}" for name, ids in swept.items())
    say(f"{len(old)} {done}{counts}. The store has {size(now.bytes)}, {size(freed)} less than before.")
    if older_than is not None and (hidden := hidden_tasks(place)):
        say(f"{hidden} left out: --all-owners", "dim")


def _sweep(place: Place) -> dict[str, list[str]]:
    """Run one round of the keeper, unless another keeper is active."""
    from ..engines.keeper import Keeper
    from ..store.artifacts import Removal

    removal = Removal(place.artifact_store)
    keeper = Keeper(place.store, place.settings, f"prune_{os.getpid()}", remove_files=removal.soon)
    swept = keeper.sweep()
    removal.catch_up()
    if swept is None:
        say("The keeper of a supervisor is active; it expires tasks.")
        return {}
    return {"expired": swept.expired, "purged": swept.purged}


webhook_commands = group("webhooks", "List and retry failed webhook deliveries.", OPERATIONS)


@command(
    "ls",
    group=webhook_commands,
    examples=["backburner webhooks ls -t lab.py", "backburner webhooks ls --all-owners --json"],
    remote=True,
)
def list_deliveries(place: Place) -> None:
    """List webhook deliveries that are pending or have failed."""
    found = place.operator.webhooks(place.owner)
    if place.as_json:
        print_json({"deliveries": found})
        return
    if not found:
        say("All webhooks are delivered.")
        return
    rows = [
        [
            one["webhook_id"],
            one["task_id"],
            one["endpoint"],
            one["attempts"],
            cell("failed", "red") if one["given_up"] else moment(from_iso(one["next_at"])),
            one["last_error"],
        ]
        for one in found
    ]
    show(table(["WEBHOOK", "TASK", "ENDPOINT", "ATTEMPTS", "NEXT", "ERROR"], rows, whole=("WEBHOOK",)))


@command(
    "retry",
    group=webhook_commands,
    examples=["backburner webhooks retry -t lab.py", "backburner webhooks retry msg_4f1c… -t lab.py"],
    remote=True,
)
def retry_deliveries(
    place: Place,
    webhooks: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WEBHOOK…]", help="The deliveries (default: all failed)", show_default=False),
    ] = None,
) -> None:
    """Retry failed webhook deliveries."""
    known = place.operator.webhooks(place.owner)
    wanted = webhooks or [one["webhook_id"] for one in known if one["given_up"]]
    again = [one for one in wanted if place.operator.retry_webhook(one, place.owner)]
    if place.as_json:
        print_json({"retried": again})
        return
    for unknown in sorted(set(wanted) - set(again)):
        say(f"There is no webhook delivery {unknown}.")
    say(f"{len(again)} to retry; a running supervisor sends them.")


client_commands = group("client", "Reset the timeouts learned from MCP clients.", OPERATIONS)


@command(
    "reset",
    group=client_commands,
    owner=False,
    examples=["backburner client reset my-host -t lab.py"],
    remote=True,
)
def reset_client(
    place: Place,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The client (default: all)", show_default=False)
    ] = None,
) -> None:
    """Delete the timeouts learned from an MCP client. `status` lists them; servers follow within seconds."""
    count = place.operator.forget_clients(name)
    if place.as_json:
        print_json({"forgotten": count})
    else:
        say(f"{count} timeouts of {name or 'all clients'} deleted.")
