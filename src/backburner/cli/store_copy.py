"""`migrate --to`: a store copied into another, as the person at the terminal sees it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from .exits import Exit
from .output import cell, print_json, say, show, size, stderr

if TYPE_CHECKING:
    from ..moving import Moved
    from ..stores.copying import Progress
    from .place import Place


def copy_store(place: Place, to: str, data_dir: str | None) -> None:
    """Copy the store of a place to the URL `to`, and say what to do next."""
    from ..moving import move

    settings = place.settings
    if data_dir is not None:
        settings = dataclasses.replace(settings, data_dir=data_dir)
    began = time.monotonic()
    try:
        with _progress(place) as progress:
            moved = move(place.store, settings, place.data_dir, to, progress)
    except KeyboardInterrupt:
        say("Interrupted: no task and no file was copied. Begin again when you like.", "yellow")
        raise typer.Exit(Exit.INTERRUPTED) from None
    if place.as_json:
        print_json(_record(place, moved))
        return
    tasks, rows = moved.tables["tasks"].rows, sum(one.rows for one in moved.tables.values())
    files = f"{moved.files.files:,} files ({size(moved.files.bytes)})"
    took = f"{time.monotonic() - began:.1f} s"
    show(
        cell(f"Copied {tasks:,} tasks ({rows:,} rows in all) and {files} to {moved.url} in {took}."),
        cell("Every row and every file was read back: counts and checksums agree."),
        cell(
            f"{place.store.url} is as it was. Nobody should use it any more; delete it when you are content."
        ),
    )
    _say_what_is_next(moved, data_dir)


def _record(place: Place, moved: Moved) -> dict[str, object]:
    return {
        "store": place.store.url,
        "to": moved.url,
        "data_dir": str(moved.data_dir),
        "tables": {name: dataclasses.asdict(one) for name, one in moved.tables.items()},
        **dataclasses.asdict(moved.files),
    }


def _say_what_is_next(moved: Moved, data_dir: str | None) -> None:
    say("Next, where the store is set (the app's code, backburner.toml, or the environment):")
    say(f"  BACKBURNER_STORE={moved.url}    # with its password, if it has one")
    if data_dir is not None:
        say(f"  BACKBURNER_DATA_DIR={moved.data_dir}")
    say(f"Then start your servers and workers again. The files are in {moved.data_dir}.")


@contextmanager
def _progress(place: Place) -> Iterator[Progress]:
    """A live bar on a terminal, a line for each part in a pipe, silence where JSON is wanted."""
    if place.as_json:
        yield lambda doing, done, total: None
    elif stderr().is_terminal:
        from rich.progress import Progress as Bar

        with Bar(console=stderr(), transient=True) as bar:
            task = bar.add_task("")
            yield lambda doing, done, total: bar.update(task, description=doing, completed=done, total=total)
    else:
        yield _line


def _line(doing: str, done: int, total: int) -> None:
    if done and done == total:
        say(f"{doing}: {done:,}")
