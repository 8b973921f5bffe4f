"""`@verb`: a function as a verb of the command line, with the options that every verb has."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from ..errors import TaskNotFound
from ..task import LOCAL_OWNER
from .completion import complete_task_id
from .filters import OPTIONS, filters
from .output import say
from .place import Place, Where, opened

PANEL = "Where to look"

_COMMON: dict[str, tuple[Any, Any]] = {
    "target": (
        Annotated[
            str | None,
            typer.Option(
                "--target",
                "-t",
                metavar="APP",
                help="The app: lab.py, lab.py:bb or package.module:bb (default: BACKBURNER_TARGET)",
                rich_help_panel=PANEL,
            ),
        ],
        None,
    ),
    "store": (
        Annotated[
            str | None,
            typer.Option(
                "--store",
                "-s",
                metavar="URL",
                help="The store: sqlite:///file.db or postgresql://… (default: BACKBURNER_STORE)",
                rich_help_panel=PANEL,
            ),
        ],
        None,
    ),
    "owner": (
        Annotated[
            str,
            typer.Option(metavar="NAME", help="Whose tasks", rich_help_panel=PANEL),
        ],
        LOCAL_OWNER,
    ),
    "all_owners": (
        Annotated[bool, typer.Option("--all-owners", help="Everybody's tasks", rich_help_panel=PANEL)],
        False,
    ),
    "as_json": (
        Annotated[bool, typer.Option("--json", help="Write JSON to stdout", rich_help_panel=PANEL)],
        False,
    ),
}

#: Of verbs that work at a server elsewhere, too.
_REMOTE: dict[str, tuple[Any, Any]] = {
    "server": (
        Annotated[
            str | None,
            typer.Option(
                metavar="URL",
                help="A server elsewhere, through its API",
                rich_help_panel=PANEL,
            ),
        ],
        None,
    ),
    "token": (
        Annotated[
            str | None,
            typer.Option(
                metavar="TOKEN",
                help="For --server: a bearer token that it knows",
                envvar="BACKBURNER_TOKEN",
                rich_help_panel=PANEL,
            ),
        ],
        None,
    ),
}

#: Of the others: they say so, and not that there is no such option.
_REFUSED: dict[str, tuple[Any, Any]] = {
    "server": (Annotated[str | None, typer.Option("--server", hidden=True)], None),
    "token": (Annotated[str | None, typer.Option("--token", hidden=True)], None),
}
_NOT_THERE = "this verb is for the machine that the server runs on: run it there, without --server"

#: The parameters of verbs that take task ids.
_IDS = ("task_id", "task_ids", "parent")
TaskId = Annotated[
    str,
    typer.Argument(metavar="TASK_ID", help="The task", autocompletion=complete_task_id, show_default=False),
]


def verb(
    app: typer.Typer,
    name: str | None = None,
    *,
    examples: Sequence[str],
    tools: bool = False,
    create: bool = False,
    panel: str = "Tasks",
    filtered: bool = False,
    remote: bool = False,
    without: Sequence[str] = (),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add a function to `app`, with the common options and, if `filtered`, filters, but those in `without`.

    A first parameter `place` gets the open Place; `where` gets what the options say, unopened.
    The second of a `filtered` verb, `chosen`, gets what `TaskService.list` takes.
    A verb without `owner` is the operator's. Parameters in `_IDS` get whole task ids.
    `tools` and `create` are for `open_place`. One that is `remote` works at a server elsewhere, too; others
    refuse to.
    The examples are part of the verb's help.
    """

    def add(function: Callable[..., None]) -> Callable[..., None]:
        first, *own = inspect.signature(function, eval_str=True).parameters.values()
        own = [one for one in own if one.name != "chosen"]
        refused = {} if {"server", "token"} & {one.name for one in own} else _REFUSED  # one may have its own
        common = {**_COMMON, **(_REMOTE if remote else refused)}
        choosing = [key for key in OPTIONS if filtered and key not in without]
        shared = [
            inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for key, (annotation, default) in {**OPTIONS, **common}.items()
            if key in choosing or (key in common and key not in without)
        ]

        def run(**given: Any) -> None:
            # What a verb goes without, it may have as an argument of its own.
            chosen = {key: given.pop(key) for key in common if key not in without}
            where = Where.of(chosen)
            if where.server and not remote:
                raise typer.BadParameter(_NOT_THERE)
            if first.name == "where":
                function(where, **given)
                return
            with opened(where, tools=tools, create=create) as place, _saying_whose_task(place):
                given = {key: _whole(place, key, value) for key, value in given.items()}
                if filtered:
                    given["chosen"] = filters(**{key: given.pop(key) for key in choosing})
                function(place, **given)

        parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own] + shared
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        run.__name__ = function.__name__
        run.__doc__ = function.__doc__
        app.command(name, help=_help(function, examples), rich_help_panel=panel)(run)
        return function

    return add


@contextmanager
def _saying_whose_task(place: Place) -> Iterator[None]:
    """Name the owner of a task that is not found because the options leave that owner out."""
    try:
        yield
    except TaskNotFound as error:
        owner = place.other_owner_of(error.details["task_id"])
        if owner is not None and not place.as_json:
            say(f"This task belongs to {owner}: add --owner {owner}, or --all-owners.")
        raise


def _whole(place: Place, key: str, value: Any) -> Any:
    """What a parameter gets: where it takes task ids, these may be given by how they begin."""
    if key not in _IDS or value is None:
        return value
    return place.whole_id(value) if isinstance(value, str) else [place.whole_id(one) for one in value]


def _help(function: Callable[..., None], examples: Sequence[str]) -> str:
    paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    text = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    lines = "\n".join(f"  {line}" for line in examples)
    whole = f"{text}\n\n\b\nExamples:\n{lines}" if examples else text
    return whole.replace("[", "\\[")  # else rich takes it for markup


def examples_of(command: Any) -> tuple[str, list[str]]:
    """The help of a verb without its examples, and these; for the documentation."""
    whole = typing.cast(str, command.help or "").replace("\\[", "[")
    text, _, listed = whole.partition("\n\n\b\nExamples:\n")
    return text, [line.strip() for line in listed.splitlines()]
