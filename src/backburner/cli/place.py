"""The place a command works on: a store, an app with its store, or a remote server."""

from __future__ import annotations

import dataclasses
import os
import shlex
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ..core.files import tasks_folder
from ..core.lifecycle import LEASED, State
from ..core.task import LOCAL_OWNER
from ..core.times import iso
from ..service.names import SHORT_CHARS, owner_name
from ..service.records import masked_inputs
from ..settings import without_password
from ..web.remote import Connection, RemoteArtifacts, RemoteOperatorService, RemoteTaskService
from .output import age, say

if TYPE_CHECKING:
    from ..app import Backburner
    from ..core.task import Task, Worker
    from ..engines.health import Supervision
    from ..service.protocol import OperatorServiceProtocol, TaskServiceProtocol
    from ..settings import Settings
    from ..store.artifacts import ArtifactReader, ArtifactStore
    from ..store.protocol import Store


@dataclass(frozen=True)
class Where:
    """Place options of a command. `owner=None` means all owners."""

    target: str | None = None
    store: str | None = None
    owner: str | None = LOCAL_OWNER
    as_json: bool = False
    server: str | None = None
    token: str | None = None

    @property
    def options(self) -> str:
        """The same options, for a command to suggest next."""
        store = self.store and without_password(self.store)
        given = {"--target": self.target, "--store": store, "--server": self.server}
        parts = [f" {option} {shlex.quote(value)}" for option, value in given.items() if value]
        if self.owner is None:
            parts.append(" --all-owners")
        elif self.owner != LOCAL_OWNER:
            parts.append(f" --owner {shlex.quote(self.owner)}")
        return "".join(parts)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Where:
        return cls(
            target=given.get("target"),
            store=given.get("store"),
            owner=None if given.get("all_owners") else given.get("owner", LOCAL_OWNER),
            as_json=given.get("as_json", False),
            server=given.get("server"),
            token=given.get("token"),
        )


class Watch(Protocol):
    """The part of a store's watch that live views use."""

    def fileno(self) -> int: ...

    def drain(self) -> object: ...

    def mend(self) -> None: ...

    def close(self) -> None: ...


@dataclass
class Place:
    """A local store, with or without its app; RemotePlace is a server.

    `app` is None where only a store was named; then no tools are known.
    """

    where: Where
    settings: Settings
    service: TaskServiceProtocol
    data_dir: Path
    app: Backburner | None = None

    @property
    def store(self) -> Store:
        """The local store. Commands that also work on a server use `service` and `operator`."""
        from ..service.tasks import TaskService

        assert isinstance(self.service, TaskService), "a server's store is not accessible"
        return self.service.store

    @cached_property
    def owner(self) -> str | None:
        """The owner that the options name. Raises AmbiguousOwner."""
        from ..mcp.transport.auth import TokenFile
        from ..service.names import whole_owner

        named = self.where.owner
        if named in (None, LOCAL_OWNER):
            return named
        tokens = TokenFile.of(self.settings, self.data_dir)
        return whole_owner(named, [*self.owners(), *(token.principal for token in tokens.read())])

    def owners(self) -> dict[str, int]:
        """Return the number of tasks of each owner."""
        return self.store.count_owners()

    def whole_id(self, text: str) -> str:
        """Complete a task id, among the tasks of the selected owner."""
        from ..service.names import whole_id

        return whole_id(self.service, text, self.owner)

    def other_owner_of(self, task_id: str) -> str | None:
        """Return the owner's name of a task that the options exclude."""
        from ..errors import AmbiguousTask, TaskNotFound
        from ..service.names import owner_name, whole_id

        try:
            owner = self.store.head(whole_id(self.store, task_id, None)).owner
        except (TaskNotFound, AmbiguousTask):
            return None
        return None if self.owner in (None, owner) else owner_name(owner)

    def short_id(self, task_id: str) -> str:
        """Return a unique beginning of a task id."""
        from ..service.names import short_id

        return short_id(self.service, task_id)

    @property
    def name(self) -> str:
        """Display name, without secrets."""
        return without_password(self.settings.store)

    @property
    def as_json(self) -> bool:
        return self.where.as_json

    def command(self, verb: str, *words: str) -> str:
        """Return a command line for this place."""
        return " ".join(["backburner", verb, *map(shlex.quote, words)]) + self.where.options

    @contextmanager
    def news(self, task_id: str) -> Iterator[threading.Event]:
        """An event that is set after each change of a task."""
        event = threading.Event()
        stop = self.service.changes.listen(f"task:{task_id}", event.set)
        try:
            yield event
        finally:
            stop()

    def watch(self) -> Watch:
        """Return a file-like watch that becomes readable after any change."""
        return self.store.watch()

    @cached_property
    def artifact_store(self) -> ArtifactStore:
        """Storage of artifacts. Raises ConfigError."""
        from ..store.artifacts import open_artifacts

        return open_artifacts(self.settings.artifacts, tasks_folder(self.data_dir))

    @property
    def artifacts(self) -> ArtifactReader:
        return self.artifact_store

    @cached_property
    def operator(self) -> OperatorServiceProtocol:
        """Queues, workers, statistics, tools, clients and webhooks."""
        from ..app import make_operator
        from ..service.tasks import TaskService
        from ..tools.spec import Registry

        assert isinstance(self.service, TaskService)

        def tools() -> Registry:
            if self.app is None:
                return Registry()
            discover_tools(self.app)
            return self.app.tools

        return make_operator(self.service, self.data_dir, tools)

    def shown_inputs(self, task: Task) -> dict[str, Any] | None:
        """Return inputs with secrets masked; None if the tool, which declares its secrets, is unknown."""
        return masked_inputs(task, None if self.app is None else self.app.tools)

    def say_if_nobody_works(self, task: Task) -> None:
        """Warn if no worker runs; an app starts one itself."""
        if self.app is None:
            say_if_nobody_works(self, task.target)

    def close(self) -> None:
        if self.app is not None:
            self.app.close()
        else:
            store = self.store
            self.service.close()
            store.close()


@contextmanager
def opened(where: Where, *, tools: bool = False, create: bool = False) -> Iterator[Place]:
    """Open a place and close it afterwards."""
    place = open_place(where, tools=tools, create=create)
    try:
        yield place
    finally:
        place.close()


def open_place(where: Where, *, tools: bool = False, create: bool = False) -> Place:
    """Open the place that the options, the environment or `backburner.toml` name.

    `tools`: the command needs an app. `create`: create a missing SQLite file; otherwise a mistyped name would
    look like an empty store. Raises typer.BadParameter, and the errors of loading an app or opening a store.
    """
    import typer

    settings = load_settings(where)
    if where.server:
        return _open_server(where, where.server, settings)
    target = where.target or ("" if where.store and not tools else settings.target)
    if target:
        return _open_app(where, target)
    if tools:
        raise typer.BadParameter("this command needs an app: --target lab.py (or set BACKBURNER_TARGET)")
    if not names_a_store(where, settings):
        raise typer.BadParameter(
            "say where to look: --target lab.py, or --store sqlite:///lab.db (or set BACKBURNER_TARGET or"
            " BACKBURNER_STORE, or write either into backburner.toml)"
        )
    return _open_store(where, settings, create=create)


def load_settings(where: Where) -> Settings:
    from ..settings import Settings

    return Settings.load("backburner", {"store": where.store})


def load_app(where: Where, target: str) -> Backburner:
    """Load an app; a store in the options replaces its own. Raises AppNotFound."""
    from ..tools.targets import load, parse, plain_arguments

    target, ours = parse(target), [*sys.argv]
    sys.argv[:] = plain_arguments(target)  # the app may read its arguments; ours are not for it
    try:
        app: Backburner = load(target)
    finally:
        sys.argv[:] = ours
    app.quiet = True
    if where.store:
        app.settings = dataclasses.replace(app.settings, store=where.store)
    return app


def names_a_store(where: Where, settings: Settings) -> bool:
    from ..settings import default_store

    return bool(where.store) or settings.store != default_store("backburner", os.environ)


def discover_tools(app: Backburner) -> None:
    """List the tools of an attached server, once."""
    if app.server is None:
        return
    import anyio

    from ..mcp.adapters.servers import discover_tools

    anyio.run(discover_tools, app)


def _open_server(where: Where, server: str, settings: Settings) -> Place:
    import typer

    if where.target or where.store:
        raise typer.BadParameter("give either a server, or an app or a store; not both")
    if not server.startswith(("http://", "https://")):
        raise typer.BadParameter("write the server as in --server https://lab.example")
    return open_server(where, server, settings)


def _open_app(where: Where, target: str) -> Place:
    app = load_app(where, target)
    try:
        return Place(where, app.settings, app.service, app.data_dir, app)
    except BaseException:
        app.close()
        raise


def _open_store(where: Where, settings: Settings, *, create: bool) -> Place:
    from ..app import data_dir
    from ..errors import StoreError
    from ..service.tasks import TaskService
    from ..store import open_store
    from ..store.artifacts import open_artifacts
    from ..store.sqlite import sqlite_path
    from ..tools.spec import Registry

    if settings.store.startswith("sqlite:///") and not create and not sqlite_path(settings.store).exists():
        reason = "there is no such file; `backburner migrate` creates a new store"
        raise StoreError(store=settings.store, reason=reason)
    store = open_store(settings.store, synchronous=settings.sqlite.synchronous)
    folder = data_dir(settings, store.url)
    artifacts = open_artifacts(settings.artifacts, tasks_folder(folder))
    service = TaskService(store, Registry(), settings, remove_files=artifacts.remove)
    return Place(where, settings, service, folder)


def open_server(where: Where, server: str, settings: Settings) -> Place:
    """Open a remote place; the first request connects. Raises InvalidRequest."""
    return RemotePlace(where, settings, Connection(server, where.token))


class _NoNews:
    """Watch of a remote place: never readable, so that views refresh by their own timer."""

    def __init__(self) -> None:
        self._read_end, self._write_end = os.pipe()

    def fileno(self) -> int:
        return self._read_end

    def drain(self) -> None: ...

    def mend(self) -> None: ...

    def close(self) -> None:
        os.close(self._read_end)
        os.close(self._write_end)


class RemotePlace(Place):
    """A server, reached over its HTTP API."""

    def __init__(self, where: Where, settings: Settings, server: Connection) -> None:
        super().__init__(where, settings, RemoteTaskService(server), Path())
        self._server = server

    @cached_property
    def owner(self) -> str | None:
        """The server resolves owner names; by default the token's own tasks are meant."""
        return None if self.where.owner == LOCAL_OWNER else self.where.owner

    def owners(self) -> dict[str, int]:
        """The server does not reveal other owners."""
        return {}

    @property
    def name(self) -> str:
        return self._server.name

    def watch(self) -> Watch:
        return _NoNews()

    @property
    def artifacts(self) -> ArtifactReader:
        return RemoteArtifacts(self._server)

    @cached_property
    def operator(self) -> OperatorServiceProtocol:
        return RemoteOperatorService(self._server)

    def other_owner_of(self, task_id: str) -> None:
        """The server does not reveal other owners."""

    def short_id(self, task_id: str) -> str:
        """Return a fixed-length beginning: a lookup per id would take too long."""
        return task_id[:SHORT_CHARS]

    def shown_inputs(self, task: Task) -> dict[str, Any] | None:
        return task.inputs  # the server has masked them

    def say_if_nobody_works(self, task: Task) -> None: ...

    def close(self) -> None:
        self.service.close()


def supervision(place: Place) -> Supervision:
    """Return the supervisor and live workers of a local place."""
    from ..engines.health import supervision_of

    return supervision_of(place.store, place.settings, place.data_dir)


def live_workers(place: Place) -> list[Worker]:
    """Return workers of all hosts with a recent heartbeat."""
    return supervision(place).live


def leased_tasks(place: Place) -> Iterator[Task]:
    """Yield all leased tasks, of any owner."""
    from ..store.protocol import TaskQuery

    before = None
    while True:
        page = place.store.page(TaskQuery(states=LEASED, before_seq=before, limit=500))
        yield from page
        if len(page) < 500:
            return
        before = page[-1].seq


@dataclass(frozen=True, slots=True)
class Asking:
    """A task that waits for an answer, and the command that answers it."""

    task: Task
    since: int
    command: str

    def record(self) -> dict[str, str]:
        return {"task_id": self.task.task_id, "asked_at": iso(self.since), "command": self.command}

    @property
    def message(self) -> str:
        return f"{self.task.task_id} ({self.task.tool_name}) has waited {age(self.since)} for an answer"


def asking_tasks(place: Place) -> Iterator[Asking]:
    """Yield tasks that wait for an answer, of any owner."""
    for task in leased_tasks(place):
        if task.state is State.INPUT_REQUIRED:
            asked = [
                one.asked_at for one in place.store.input_requests(task.task_id) if one.answered_at is None
            ]
            where = dataclasses.replace(place.where, owner=owner_name(task.owner))
            command = f"backburner answer {task.task_id}{where.options}"
            yield Asking(task, min(asked, default=task.updated_at), command)


def say_if_nobody_works(place: Place, target: str) -> None:
    """Warn if no worker runs."""
    found = supervision(place)
    if found.standing.state == "absent" and not found.live:
        say(f"No workers run on this store; start some: backburner worker {as_written(target)}", "yellow")


def as_written(target: str) -> str:
    """Return a target in the form that users write."""
    place, _, name = target.partition("#")
    return place.partition(":")[2] + (f":{name[1:]}" if name.startswith(".") else "")
