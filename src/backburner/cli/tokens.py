"""`token`: who may call over HTTP."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..mcp.serving.roles import Role, role_of
from .filters import local_ms
from .output import cell, moment, print_json, say, show, table
from .place import Place
from .verb import TaskId, verb

if TYPE_CHECKING:
    from ..mcp.serving.token_file import Token, TokenFile

_WITHOUT = ("owner", "all_owners")


def add_to(app: typer.Typer) -> None:
    group = typer.Typer(
        no_args_is_help=True, rich_markup_mode="rich", help="Say who may call over HTTP, and who no more."
    )
    verb(
        group,
        "new",
        create=True,
        without=_WITHOUT,
        examples=[
            "backburner token new --owner alice -t lab.py",
            "backburner token new --owner alice --name laptop --expires 30d",
            "backburner token new --owner wall --role read-all",
        ],
    )(new)
    verb(
        group,
        "list",
        without=_WITHOUT,
        examples=["backburner token list -t lab.py", "backburner token list --json"],
    )(list_tokens)
    verb(
        group,
        "task",
        without=_WITHOUT,
        examples=["backburner token task tsk_01J8WQ6JY7 --for 4h -t lab.py"],
    )(token_of_task)
    verb(group, "revoke", without=_WITHOUT, examples=["backburner token revoke laptop -t lab.py"])(revoke)
    app.add_typer(group, name="token", rich_help_panel="Servers")


def new(
    place: Place,
    owner: Annotated[str, typer.Option(metavar="NAME", help="Whose tasks it gives access to")],
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="What to call it (default: as its owner)")
    ] = None,
    scopes: Annotated[
        list[str] | None, typer.Option("--scope", metavar="SCOPE", help="What tools may see; may be repeated")
    ] = None,
    role: Annotated[
        Role,
        typer.Option(help="Look, or steer as well; its owner's tasks, or those of all (see docs/api.md)"),
    ] = Role.OPERATE,
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="When it ends: after 30d, or at a local time")
    ] = None,
) -> None:
    """Make a token and print it, this one time.

    Its hash goes into the file that http.auth.tokens names, else to `tokens` in the data folder. A
    server that runs takes it at once; one that began without any tokens asks for them from its next
    start on.
    """
    file = _file(place)
    of_role = [] if role is Role.OPERATE else [role.scope]
    ends = None if expires is None else _end(expires)
    made, secret = file.add(owner, name, [*of_role, *(scopes or ())], ends)
    if place.as_json:
        print_json({**_record(made), "token": secret})
        return
    print(secret)
    say(f"This is the token {made.name}, for the tasks of {made.owner}; it is shown only now.")
    say(f"Its hash is in {file.path}")


def token_of_task(
    place: Place,
    task_id: TaskId,
    valid: Annotated[str, typer.Option("--for", metavar="TIME", help="How long it is good")] = "24h",
) -> None:
    """Make a token with which a worker elsewhere may run one task, through the server, and print it.

    The server must have http.worker_door switched on. Such a token reaches that task alone. It cannot be
    revoked; it expires, and is void when the task has ended.
    """
    from ..times import duration_s
    from ..worker_pass import Passes

    place.store.get(task_id)
    secret = Passes(place.store.secret()).made_for(task_id, duration_s(valid, "for"))
    if place.as_json:
        print_json({"task_id": task_id, "token": secret})
        return
    print(secret)
    say(f"Where it is to run: backburner run-task {task_id} --server URL, with this in BACKBURNER_TASK_TOKEN")


def list_tokens(place: Place) -> None:
    """List the tokens; what they are themselves is not kept."""
    tokens = _file(place).read()
    if place.as_json:
        print_json({"tokens": [_record(token) for token in tokens]})
        return
    if not tokens:
        say("No tokens.")
        return
    rows = [
        [
            token.name,
            token.owner,
            moment(token.created_at),
            cell("expired", "red") if token.expired else moment(token.expires_at) or "never",
            _role(token),
            " ".join(token.scopes),
        ]
        for token in tokens
    ]
    show(table(["NAME", "OWNER", "MADE", "EXPIRES", "ROLE", "SCOPES"], rows, whole=("NAME", "OWNER")))


def revoke(
    place: Place,
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help="The tokens", show_default=False)],
) -> None:
    """Have tokens turned away from now on; no server needs a restart."""
    for name in names:
        gone = _file(place).revoke(name)
        if place.as_json:
            print_json({"revoked": [_record(token) for token in gone]}, indent=None)
        else:
            say(
                f"{name} is turned away from now on."
                if len(gone) == 1
                else f"{len(gone)} tokens named {name} are turned away from now on."
            )


def _file(place: Place) -> TokenFile:
    from ..mcp.serving.token_file import TokenFile

    return TokenFile.of(place.settings, place.data_dir)


def _record(token: Token) -> dict[str, Any]:
    from ..times import iso

    return {
        "name": token.name,
        "owner": token.owner,
        "role": _role(token),
        "scopes": list(token.scopes),
        "created_at": iso(token.created_at),
        "expires_at": iso(token.expires_at),
    }


def _role(token: Token) -> str:
    return str(role_of(token.scopes))


def _end(text: str) -> int:
    from ..errors import ConfigError
    from ..times import duration_s

    try:
        return int((time.time() + duration_s(text)) * 1000)
    except ConfigError:
        return local_ms(text)
