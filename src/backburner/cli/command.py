"""The Typer app, the `@command` decorator with the options that commands share, exit codes and completion."""

from __future__ import annotations

import inspect
import time
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from enum import IntEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from .. import errors
from ..core.lifecycle import TERMINAL, State
from ..core.task import LOCAL_OWNER
from ..core.text import printable
from ..core.times import duration_s
from .output import say
from .place import Place, Where, opened

if TYPE_CHECKING:
    from ..core.task import Task


class Exit(IntEnum):
    """Exit codes of commands."""

    OK = 0
    TASK_FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    TROUBLE = 4
    UNFINISHED = 5
    INTERRUPTED = 130


#: The exit codes for the documentation.
MEANINGS = {
    Exit.OK: "success",
    Exit.TASK_FAILED: "the task failed, timed out or was cancelled; for `status`: no supervisor is running",
    Exit.USAGE: "usage error: an unknown option or tool, or invalid inputs",
    Exit.NOT_FOUND: "the task, artifact or token does not exist, or belongs to another owner",
    Exit.TROUBLE: "a problem with the store, the server, the artifact storage, the engine or a full queue",
    Exit.UNFINISHED: "the timeout passed before the task finished; the task continues",
    Exit.INTERRUPTED: "Ctrl-C; tasks continue",
}

_ERROR_EXITS: dict[type[errors.BackburnerError], Exit] = {
    errors.TaskNotFound: Exit.NOT_FOUND,
    errors.ArtifactNotFound: Exit.NOT_FOUND,
    errors.UnknownToken: Exit.NOT_FOUND,
    errors.NotFinished: Exit.UNFINISHED,
    errors.NotAuthorized: Exit.USAGE,
    errors.StoreError: Exit.TROUBLE,
    errors.ArtifactStorageError: Exit.TROUBLE,
    errors.EngineError: Exit.TROUBLE,
    errors.QueueFull: Exit.TROUBLE,
    errors.ConnectionLost: Exit.TROUBLE,
}


def exit_of_error(error: errors.BackburnerError) -> Exit:
    return next((code for kind, code in _ERROR_EXITS.items() if isinstance(error, kind)), Exit.USAGE)


def exit_of_state(state: State) -> Exit:
    """Return the exit code for a task that a command waited for."""
    if state is State.SUCCEEDED:
        return Exit.OK
    return Exit.TASK_FAILED if state in TERMINAL else Exit.UNFINISHED


def complete_task_id(ctx: Any, incomplete: str) -> list[tuple[str, str]]:
    return _completions(
        ctx,
        incomplete,
        lambda place: (
            (task.task_id, f"{task.tool_name}, {task.state}")
            for task in place.service.list(owner=place.owner, limit=50).tasks
        ),
    )


def complete_tool(ctx: Any, incomplete: str) -> list[tuple[str, str]]:
    return _completions(
        ctx,
        incomplete,
        lambda place: (
            (one["tool_name"], one["description"].partition("\n")[0]) for one in place.operator.tools()
        ),
    )


def complete_state(incomplete: str) -> list[str]:
    return [state for state in State if state.startswith(incomplete)]


def _completions(
    ctx: Any, incomplete: str, find: Callable[[Place], Iterable[tuple[str, str]]]
) -> list[tuple[str, str]]:
    """Return the completions with their descriptions; none on any error, which a shell could not show."""
    try:
        with opened(Where.of(ctx.params)) as place:
            return [(word, printable(text)) for word, text in find(place) if word.startswith(incomplete)]
    except Exception:
        return []


class Command(TyperCommand):
    """A command whose help shows boolean flags without `<bool>`."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _with_plain_flags(super().get_params(ctx))


class Group(TyperGroup):
    """A group in alphabetical order, whose help shows boolean flags without `<bool>`."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(self.commands)

    def get_params(self, ctx: Any) -> list[Any]:
        return _with_plain_flags(super().get_params(ctx))


class ListGroup(Group):
    """A group in which `GROUP TASK_ID` means `GROUP ls TASK_ID`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["ls", *args]
        return super().parse_args(ctx, args)


def _with_plain_flags(parameters: list[Any]) -> list[Any]:
    for one in parameters:
        if getattr(one, "is_flag", False):
            one.metavar = ""
    return parameters


app = typer.Typer(
    name="backburner",
    cls=Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

TASKS, SERVERS, OPERATIONS = "Tasks", "Servers and workers", "Operations"
#: The help panel of the options that commands share.
PANEL = "Common options"


def _option(kind: Any, default: Any, *names: str, **given: Any) -> tuple[Any, Any]:
    return kind, typer.Option(default, *names, **given)


def _common(kind: Any, default: Any, *names: str, **given: Any) -> tuple[Any, Any]:
    return _option(kind, default, *names, rich_help_panel=PANEL, **given)


_TEXT, _TEXTS = str | None, list[str] | None
_APP_HELP = "The app: lab.py, lab.py:bb or package.module:bb (default: BACKBURNER_TARGET)"
_STORE_HELP = "The store: sqlite:///file.db or postgresql://… (default: BACKBURNER_STORE)"
_SINCE_HELP = "Tasks submitted in the last 10m, 2h or 3d, or after a local time like 2026-02-05T14:30"

#: Type and Typer option of the options that commands share.
_COMMON = {
    "target": _common(_TEXT, None, "--target", "-t", metavar="APP", help=_APP_HELP),
    "store": _common(_TEXT, None, "--store", "-s", metavar="URL", help=_STORE_HELP),
    "owner": _common(str, LOCAL_OWNER, metavar="NAME", help="The owner of the tasks"),
    "all_owners": _common(bool, False, "--all-owners", help="The tasks of all owners"),
    "as_json": _common(bool, False, "--json", help="Write JSON to stdout"),
}
_REMOTE = {
    "server": _common(_TEXT, None, metavar="URL", help="Use the API of this server"),
    "token": _common(
        _TEXT, None, metavar="TOKEN", help="The bearer token for --server", envvar="BACKBURNER_TOKEN"
    ),
}
#: Local commands accept these to refuse them with a reason.
_REFUSED = {"server": _option(_TEXT, None, hidden=True), "token": _option(_TEXT, None, hidden=True)}
#: Options that choose tasks.
FILTERS = {
    "states": _option(
        _TEXTS,
        None,
        "--state",
        metavar="STATE",
        help="Tasks in this state; may be repeated",
        autocompletion=complete_state,
    ),
    "active": _option(bool, False, "--active", help="Tasks that are not finished"),
    "tool": _option(_TEXT, None, metavar="NAME", help="Tasks of this tool", autocompletion=complete_tool),
    "tags": _option(_TEXTS, None, "--tag", metavar="TAG", help="Tasks with this tag; may be repeated"),
    "parent": _option(_TEXT, None, metavar="TASK_ID", help="Tasks started by this task"),
    "since": _option(_TEXT, None, metavar="TIME", help=_SINCE_HELP),
}

#: Parameters that take task ids, which may be abbreviated.
_IDS = ("task_id", "task_ids", "parent")
TaskId = Annotated[
    str,
    typer.Argument(metavar="TASK_ID", help="The task", autocompletion=complete_task_id, show_default=False),
]


def group(name: str, help: str, panel: str, cls: type[Group] = Group) -> typer.Typer:
    """Add a group of commands."""
    made = typer.Typer(cls=cls, no_args_is_help=True, rich_markup_mode="rich", help=help)
    app.add_typer(made, name=name, rich_help_panel=panel)
    return made


def command(
    name: str | None = None,
    *,
    examples: Sequence[str],
    panel: str = TASKS,
    group: typer.Typer = app,
    needs_app: bool = False,
    create: bool = False,
    filters: Iterable[str] = (),
    owner: bool = True,
    json: bool = True,
    remote: bool = False,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add a function as a command, with the common options that it does not define itself.

    A first parameter `place` gets the open Place, and `where` the options before opening one. A function
    with neither gets no common options.
    With `filters`, the parameter `chosen` gets the arguments for `TaskService.list`.
    Task ids may be abbreviated. `needs_app` and `create` are passed to `open_place`.
    Commands without `remote` refuse --server.
    """

    def add(function: Callable[..., None]) -> Callable[..., None]:
        first, *own = inspect.signature(function, eval_str=True).parameters.values()
        register = group.command(name, cls=Command, help=_help(function, examples), rich_help_panel=panel)
        if first.name not in ("place", "where"):
            register(function)
            return function
        own = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own if one.name != "chosen"]
        left_out = {one.name for one in own} | (set() if owner else {"owner", "all_owners"})
        left_out |= set() if json else {"as_json"}
        common = {**_COMMON, **(_REMOTE if remote else _REFUSED)}
        common = {key: value for key, value in common.items() if key not in left_out}
        choosing = {key: FILTERS[key] for key in filters}
        shared = [
            inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=annotation)
            for key, (annotation, option) in {**choosing, **common}.items()
        ]

        def run(**given: Any) -> None:
            where = Where.of({key: given.pop(key) for key in common})
            if where.server and not remote:
                raise typer.BadParameter(
                    "this command works only on the machine of the server: run it there, without --server"
                )
            if first.name == "where":
                function(where, **given)
                return
            with opened(where, tools=needs_app, create=create) as place, _owner_hint(place):
                given = {key: _expanded(place, key, value) for key, value in given.items()}
                if choosing:
                    given["chosen"] = _query(**{key: given.pop(key) for key in choosing})
                function(place, **given)

        parameters = own + shared
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        run.__name__ = function.__name__
        register(run)
        return function

    return add


@contextmanager
def _owner_hint(place: Place) -> Iterator[None]:
    """Name the owner of a task that is not found because it belongs to another owner."""
    try:
        yield
    except errors.TaskNotFound as error:
        owner = place.other_owner_of(error.details["task_id"])
        if owner is not None and not place.as_json:
            say(f"This task belongs to {owner}: add --owner {owner}, or --all-owners.")
        raise


def _expanded(place: Place, key: str, value: Any) -> Any:
    if key not in _IDS or value is None:
        return value
    return place.whole_id(value) if isinstance(value, str) else [place.whole_id(one) for one in value]


def _help(function: Callable[..., None], examples: Sequence[str]) -> str:
    paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    text = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    lines = "\n".join(f"  {line}" for line in examples)
    return f"{text}\n\n\b\nExamples:\n{lines}".replace("[", "\\[")  # rich markup otherwise


def examples_of(command: Any) -> tuple[str, list[str]]:
    """Return the help of a command without its examples, and the examples, for the documentation."""
    whole = typing.cast(str, command.help or "").replace("\\[", "[")
    text, _, listed = whole.partition("\n\n\b\nExamples:\n")
    return text, [line.strip() for line in listed.splitlines()]


def _query(
    *,
    states: list[str] | None = None,
    active: bool = False,
    tool: str | None = None,
    tags: list[str] | None = None,
    parent: str | None = None,
    since: str | None = None,
) -> dict[str, Any]:
    """Return the arguments of `TaskService.list` for the filters that were given."""
    wanted = [*(states or ()), *([state for state in State if state not in TERMINAL] if active else ())]
    given = {
        "states": wanted,
        "tool_name": tool,
        "tags_any": tags,
        "parent_id": parent,
        "submitted_after": None if since is None else parse_time(since, -1),
    }
    return {name: value for name, value in given.items() if value not in (None, [])}


def every_task(place: Place, chosen: dict[str, Any]) -> Iterator[Task]:
    """Yield all tasks that a filter chooses, page by page."""
    cursor = None
    while True:
        page = place.service.list(owner=place.owner, **chosen, limit=500, cursor=cursor)
        yield from page.tasks
        if (cursor := page.next_cursor) is None:
            return


def parse_time(text: str, direction: int) -> int:
    """Return the milliseconds of a duration before (-1) or after (1) now, or of a local ISO 8601 time."""
    try:
        return int((time.time() + direction * duration_s(text)) * 1000)
    except errors.ConfigError:
        pass
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        reason = f"{printable(text)} is neither a duration such as 2h nor a time such as 2026-02-05T14:30"
        raise typer.BadParameter(reason) from None
