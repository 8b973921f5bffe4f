"""Commands for servers and workers: `serve`, `bridge`, `token`, `dashboard`, `worker` and `run-task`."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import tempfile
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ..core.text import printable
from ..core.times import duration_s, iso
from ..errors import ConfigError
from ..observability.logging import set_up
from .command import SERVERS, Exit, TaskId, command, exit_of_state, group, parse_time
from .output import cell, moment, print_json, say, show, table
from .place import Place, Where, load_app, load_settings, opened

if TYPE_CHECKING:
    from ..core.lifecycle import State
    from ..mcp.transport.auth import Token, TokenFile
    from ..settings import Settings


class Framing(Enum):
    newline = "newline"
    lsp = "lsp"


Target = Annotated[
    str | None,
    typer.Argument(
        metavar="TARGET",
        help="The app: lab.py, lab.py:bb or package.module:bb (default: BACKBURNER_TARGET)",
        show_default=False,
    ),
]


@command(
    panel=SERVERS,
    owner=False,
    json=False,
    examples=[
        "backburner serve lab.py",
        "backburner serve lab.py --http 127.0.0.1:8765",
        "backburner serve lab.py --http 0.0.0.0:8765 --allow-anonymous",
    ],
)
def serve(
    where: Where,
    target: Target = None,
    http: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Serve over HTTP, not stdio")] = None,
    allow_anonymous: Annotated[
        bool, typer.Option("--allow-anonymous", help="Accept other hosts although there are no tokens")
    ] = False,
    log_level: Annotated[str, typer.Option(help="The log level of the HTTP server")] = "info",
) -> None:
    """Serve an app over stdio, or over HTTP with --http. Its tasks continue after it exits."""
    target = target or load_settings(where).target
    if not target:
        raise typer.BadParameter("name the app: backburner serve lab.py (or set BACKBURNER_TARGET)")
    bb = load_app(where, target)
    if http is None:
        bb.run()
        return
    from ..mcp.transport.run import run_http, split_address

    host, port = split_address(http)
    if allow_anonymous:
        bb.settings = bb.settings.with_group(dataclasses.replace(bb.settings.http, allow_anonymous=True))
    run_http(bb, host, port, log_level=log_level)


@command(
    panel=SERVERS,
    examples=[
        "backburner bridge -- python lab.py",
        "backburner bridge --patience 4m -- npx some-server",
        "backburner bridge --framing lsp -- lsp-style-server",
        "backburner bridge http://127.0.0.1:8765/mcp",
    ],
)
def bridge(
    server: Annotated[
        list[str], typer.Argument(help="The server: a URL, or after -- the command that starts it")
    ],
    patience: Annotated[
        str | None,
        typer.Option(
            help="How long to hold a call before returning a handle, such as 50s (default: by host)"
        ),
    ] = None,
    framing: Annotated[
        Framing,
        typer.Option(help="Message framing of the server's command: newlines, or Content-Length as in LSP"),
    ] = Framing.newline,
    token: Annotated[
        str | None,
        typer.Option(help="The bearer token for a URL", envvar="BACKBURNER_TOKEN", show_envvar=True),
    ] = None,
) -> None:
    """Connect a host without task support to a server with tasks, over stdio.

    Calls are held, with progress, while the host waits. Then the host gets a handle, and the tool
    wait_for_task returns the result.
    """
    from ..client.bridge import Bridge
    from ..mcp.transport.run import until_interrupted
    from ..settings import Settings

    settings = Settings.load("bridge")
    if patience is not None:
        settings = settings.with_group(
            dataclasses.replace(settings.mcp, patience_s=duration_s(patience, "patience"))
        )
    target = server[0] if len(server) == 1 and "://" in server[0] else server
    with until_interrupted() as interrupted:
        asyncio.run(Bridge(target, settings=settings, token=token, framing=framing.value).run())
    if interrupted.is_set():
        raise typer.Exit(Exit.INTERRUPTED)


@command(
    panel=SERVERS,
    owner=False,
    json=False,
    examples=[
        "backburner worker lab.py",
        "backburner worker lab.py --queue cpu_heavy=4 --queue gpu_small",
        "backburner worker pkg.lab:bb --store postgresql://db/tasks --idle-exit 10m",
    ],
)
def worker(
    where: Where,
    target: Target = None,
    queues: Annotated[
        list[str] | None,
        typer.Option(
            "--queue", metavar="NAME", help="Only this queue, NAME or NAME=WORKERS; may be repeated"
        ),
    ] = None,
    idle_exit: Annotated[str, typer.Option(metavar="TIME", help="Exit when idle; 0: never")] = "0",
    engine: Annotated[str, typer.Option(metavar="NAME", help="local, dramatiq or celery")] = "local",
) -> None:
    """Run the tasks of an app in the foreground.

    There is one supervisor for each store and host. A supervisor that a server has started hands over: it
    finishes its running tasks, and this one takes all others. After Ctrl-C or SIGTERM, running tasks have
    supervisor.drain_grace_s to finish; a second signal returns them to their queue.
    """
    with opened(dataclasses.replace(where, target=target), tools=True, create=True) as place:
        settings = place.settings.with_group(
            dataclasses.replace(place.settings.supervisor, idle_exit_s=duration_s(idle_exit, "idle_exit"))
        )
        settings = _with_workers(settings, queues or ())
        if engine == "local":
            _supervise(place, settings)
        else:
            _run_external_worker(engine, place, settings)


def _with_workers(settings: Settings, wanted: Sequence[str]) -> Settings:
    """Return settings with workers for the wanted queues only; for all if none is named."""
    if not wanted:
        return settings
    queues = {name: dataclasses.replace(queue, workers=0) for name, queue in settings.queues.items()}
    for text in wanted:
        name, _, count = text.partition("=")
        if name not in queues:
            raise typer.BadParameter(f"there is no queue {printable(name)}; known: {', '.join(queues)}")
        if count and not count.isdigit():
            raise typer.BadParameter(f"{printable(text)} is not NAME=WORKERS")
        workers = int(count) if count else settings.queues[name].workers or 1
        queues[name] = dataclasses.replace(queues[name], workers=workers)
    return dataclasses.replace(settings, queues=queues)


def _run_external_worker(engine: str, place: Place, settings: Settings) -> None:
    from ..engines.external import load_engine
    from ..settings import ENGINES

    if engine not in ENGINES:
        raise typer.BadParameter(f"there is no engine {printable(engine)}; known: {', '.join(ENGINES)}")
    if engine not in settings.outside_engines:
        raise typer.BadParameter(f"no queue of this app uses {engine}: set engine, or queues.NAME.engine")
    module = load_engine(engine)
    if not hasattr(module, "work"):
        raise typer.BadParameter(f"{engine} starts its workers itself, with run-task")
    assert place.app is not None, "the command needs an app"
    module.work(settings, place.data_dir, place.app.target)


def _supervise(place: Place, settings: Settings) -> None:
    """Run a supervisor until a signal, or until it has been idle for long."""
    from ..engines.local import SupervisorLock
    from ..engines.local.lock import is_detached, refuse_another_store, take_over
    from ..supervise import supervise

    lock = SupervisorLock(place.data_dir)
    refuse_another_store(lock, place.store)
    found = lock.holder()
    held = take_over(lock, is_detached, within_s=settings.supervisor.drain_grace_s + 10)
    if held is None:
        pid = (lock.holder() or {}).get("pid", "unknown")
        stop = place.command("supervisor stop")
        say(f"A worker is running for this store already: pid {pid}. To stop it: {stop}", "red")
        raise typer.Exit(Exit.TROUBLE)
    set_up(settings.log)
    assert place.app is not None, "the command needs an app"
    slots = ", ".join(f"{name} {workers}" for name, workers in settings.local_workers.items())

    def greet(supervisor_id: str) -> None:
        say(f"{supervisor_id} works on {place.store.url}: {slots}. Ctrl-C lets running tasks finish.")
        if found:
            say(f"It takes over from pid {found.get('pid')}, which finishes its running tasks.")

    warm = [(place.app.target, "")]
    supervise(place.store, settings, place.data_dir, held, warm, on_ready=greet, detached=False)
    say("The worker has exited; its tasks are finished or back in their queue.")


class _Outcome(NamedTuple):
    """The task when `run-task` ends."""

    task_id: str
    state: State
    leased: bool
    waits_for: str | None = None


@command(
    "run-task",
    panel=SERVERS,
    owner=False,
    examples=["backburner run-task tsk_01J8WQ6JY7 --store postgresql://db/tasks"],
)
def run_task(
    where: Where,
    task_id: TaskId,
    server: Annotated[
        str,
        typer.Option(metavar="URL", envvar="BACKBURNER_SERVER", help="Run the task through this server"),
    ] = "",
    token: Annotated[
        str,
        typer.Option(
            metavar="TOKEN",
            envvar="BACKBURNER_TASK_TOKEN",
            help="The token for --server, from `backburner token task`",
        ),
    ] = "",
) -> None:
    """Lease one task and run it; for engines that give each task a machine of its own.

    A task that another worker has leased is left alone (exit code 0). --server needs no access to the store,
    only that server, a token for this task, and the app.
    """
    from ..tools.targets import parse

    target = parse(where.target) if where.target else ""
    if server:
        outcome = _run_through_server(server, token, task_id, target)
    else:
        with opened(where) as place:
            outcome = _run_on_store(place, task_id, target)
    if where.as_json:
        print_json({"task_id": outcome.task_id, "state": str(outcome.state), "leased": outcome.leased})
    elif outcome.leased:
        say(f"{outcome.task_id} {outcome.state}")
    else:
        why = f"it is {outcome.state}" if outcome.waits_for is None else f"it is held. {outcome.waits_for}"
        say(f"{outcome.task_id} does not wait for a worker: {why.rstrip('.')}.")
    raise typer.Exit(exit_of_state(outcome.state) if outcome.leased else Exit.OK)


def _run_on_store(place: Place, task_id: str, target: str) -> _Outcome:
    from .. import supervise

    task_id = place.whole_id(task_id)
    task = place.service.status(task_id, owner=None).task
    leased = supervise.run_task(place.store, place.settings, place.data_dir, task, target=target)
    if not leased:
        place.store.take_back([task_id])  # a task held by a limit is handed out again later
    task = place.store.get(task_id)
    return _Outcome(task_id, task.state, leased, task.waits_for)


def _run_through_server(server: str, token: str, task_id: str, target: str) -> _Outcome:
    from .. import supervise
    from ..engines.remote.client import RemoteStore, TaskEnded
    from ..settings import ArtifactSettings, Settings

    if not token:
        raise typer.BadParameter(
            "--server needs a token for the task: run `backburner token task` on the server"
        )
    with tempfile.TemporaryDirectory(prefix="backburner-run-") as folder:
        try:
            store = RemoteStore(server, token, Path(folder))
        except TaskEnded as ended:
            return _Outcome(task_id, ended.state, leased=False)
        with contextlib.closing(store):
            if store.task.task_id != task_id:
                raise typer.BadParameter(f"the token is for another task, {store.task.task_id}")
            # The server stores artifacts where its settings say; here they only pass through.
            settings = Settings.load("backburner").with_group(ArtifactSettings())
            leased = supervise.run_task(
                store, settings, Path(folder), store.task, store.supervisor_id, target=target
            )
            try:
                task = store.begin()
            except TaskEnded as ended:
                return _Outcome(task_id, ended.state, leased)
            return _Outcome(task_id, task.state, leased, task.waits_for)


token_commands = group("token", "Create, list and revoke access tokens for HTTP.", SERVERS)


@command(
    "new",
    group=token_commands,
    create=True,
    owner=False,
    examples=[
        "backburner token new --owner alice -t lab.py",
        "backburner token new --owner alice --name laptop --expires 30d",
        "backburner token new --owner wall --role read-all",
    ],
)
def new_token(
    place: Place,
    owner: Annotated[str, typer.Option(metavar="NAME", help="The owner whose tasks the token can access")],
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Default: the owner")] = None,
    scopes: Annotated[
        list[str] | None, typer.Option("--scope", metavar="SCOPE", help="A scope for tools; may be repeated")
    ] = None,
    role: Annotated[
        str,
        typer.Option(metavar="ROLE", help="read, operate, read-all or operate-all"),
    ] = "operate",
    expires: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Expire after a duration such as 30d, or at a local time"),
    ] = None,
) -> None:
    """Create a token and print it once.

    Its hash is stored in the file http.auth.tokens, or in `tokens` in the data folder. A running server
    accepts it at once. A server that started without tokens requires them after a restart.
    """
    from ..mcp.transport.auth import Role

    if role not in [*Role]:
        raise typer.BadParameter(f"{printable(role)} is not a role; use one of {', '.join(Role)}")
    file = _token_file(place)
    of_role = [] if role == Role.OPERATE else [Role(role).scope]
    ends = None if expires is None else parse_time(expires, 1)
    made, secret = file.add(owner, name, [*of_role, *(scopes or ())], ends)
    if place.as_json:
        print_json({**_token_record(made), "token": secret})
        return
    print(secret)
    say(f"This is the token {made.name}, for the tasks of {made.owner}. It is not shown again.")
    say(f"Its hash is in {file.path}")


@command(
    "task",
    group=token_commands,
    owner=False,
    examples=["backburner token task tsk_01J8WQ6JY7 --for 4h -t lab.py"],
)
def task_token(
    place: Place,
    task_id: TaskId,
    valid: Annotated[str, typer.Option("--for", metavar="TIME", help="How long it is valid")] = "24h",
) -> None:
    """Create a token with which a remote worker can run one task, and print it.

    The server needs the setting http.worker_door. The token cannot be revoked; it expires, and ends with the
    task.
    """
    from ..engines.remote import TaskTokens

    place.store.get(task_id)
    secret = TaskTokens(place.store.secret()).make(task_id, duration_s(valid, "for"))
    if place.as_json:
        print_json({"task_id": task_id, "token": secret})
        return
    print(secret)
    say(f"On the worker: backburner run-task {task_id} --server URL, with this in BACKBURNER_TASK_TOKEN")


@command(
    "ls",
    group=token_commands,
    owner=False,
    examples=["backburner token ls -t lab.py", "backburner token ls --json"],
)
def list_tokens(place: Place) -> None:
    """List the tokens. Only their hashes are stored."""
    tokens = _token_file(place).read()
    if place.as_json:
        print_json({"tokens": [_token_record(token) for token in tokens]})
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
            _token_record(token)["role"],
            " ".join(token.scopes),
        ]
        for token in tokens
    ]
    show(table(["NAME", "OWNER", "CREATED", "EXPIRES", "ROLE", "SCOPES"], rows, whole=("NAME", "OWNER")))


@command("revoke", group=token_commands, owner=False, examples=["backburner token revoke laptop -t lab.py"])
def revoke_token(
    place: Place,
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help="The tokens", show_default=False)],
) -> None:
    """Revoke tokens. Running servers refuse them at once."""
    for name in names:
        revoked = _token_file(place).revoke(name)
        if place.as_json:
            print_json({"revoked": [_token_record(token) for token in revoked]}, indent=None)
        else:
            count = "" if len(revoked) == 1 else f" ({len(revoked)} tokens)"
            say(f"{name} is revoked{count}.")


def _token_file(place: Place) -> TokenFile:
    from ..mcp.transport.auth import TokenFile

    return TokenFile.of(place.settings, place.data_dir)


def _token_record(token: Token) -> dict[str, Any]:
    from ..mcp.transport.auth import role_of

    return {
        "name": token.name,
        "owner": token.owner,
        "role": str(role_of(token.scopes)),
        "scopes": list(token.scopes),
        "created_at": iso(token.created_at),
        "expires_at": iso(token.expires_at),
    }


@command(
    panel=SERVERS,
    owner=False,
    examples=[
        "backburner dashboard http://127.0.0.1:8765 -t lab.py",
        "backburner dashboard http://127.0.0.1:8765 -t lab.py --open",
    ],
)
def dashboard(
    place: Place,
    address: Annotated[str, typer.Argument(metavar="URL", help="The server", show_default=False)],
    in_browser: Annotated[bool, typer.Option("--open", help="Open the link in a browser")] = False,
) -> None:
    """Print a link to the dashboard of a server.

    For a server without tokens, the link signs you in. It works once, within an hour.
    """
    from ..web.dashboard.sessions import one_time_link

    if not address.startswith(("http://", "https://")):
        raise ConfigError(setting="URL", reason=f"{address!r} is not a URL; write http://127.0.0.1:8765")
    auth = place.settings.http.auth
    if auth.jwks or auth.jwt_key or auth.tokens or _token_file(place).path.exists():
        link = f"{address.rstrip('/')}/"  # its page asks for a token
    else:
        link = one_time_link(place.store, address)
    if place.as_json:
        print_json({"url": link})
    else:
        print(link)
    if in_browser:
        typer.launch(link)
