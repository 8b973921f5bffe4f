"""Where a verb looks: a store, an app with its store, or a server elsewhere.

`open_place` is the only function that knows the kinds. A verb asks its Place for tasks (`service`, `store`,
`artifacts`) and for what is beside them (`operator`); a RemotePlace asks a server in its stead.
"""

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
from typing import TYPE_CHECKING, Any

from ..config import without_password
from ..folders import tasks_folder
from ..task import LOCAL_OWNER

if TYPE_CHECKING:
    from ..app import Backburner
    from ..artifacts import ArtifactStore
    from ..config import Settings
    from ..service import TaskService
    from ..store import Store
    from ..task import Task
    from .operator import Operator


@dataclass(frozen=True)
class Where:
    """What the options of a verb say. `owner=None` is the operator, who sees every task."""

    target: str | None = None
    store: str | None = None
    owner: str | None = LOCAL_OWNER
    as_json: bool = False
    server: str | None = None
    token: str | None = None

    @property
    def options(self) -> str:
        """The options once more, for a command that the user may want next."""
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
        """What the options say, of which a verb may go without some."""
        return cls(
            target=given.get("target"),
            store=given.get("store"),
            owner=None if given.get("all_owners") else given.get("owner", LOCAL_OWNER),
            as_json=given.get("as_json", False),
            server=given.get("server"),
            token=given.get("token"),
        )


@dataclass
class Place:
    """An open place: a store here, or as a RemotePlace, a server elsewhere.

    `app` is None where only a store was named; then no tools are known.
    """

    where: Where
    settings: Settings
    service: TaskService
    data_dir: Path
    app: Backburner | None = None

    @cached_property
    def owner(self) -> str | None:
        """Whose tasks the options name: an owner as the store has it. Raises AmbiguousOwner."""
        from ..mcp.serving.token_file import TokenFile
        from ..short_names import whole_owner

        named = self.where.owner
        if named in (None, LOCAL_OWNER):
            return named
        tokens = TokenFile.of(self.settings, self.data_dir)
        return whole_owner(named, [*self.store.count_owners(), *(token.principal for token in tokens.read())])

    def whole_id(self, text: str) -> str:
        """The task id that begins so, among the tasks that the options name."""
        from ..short_names import whole_id

        return whole_id(self.store, text, self.owner)

    def other_owner_of(self, task_id: str) -> str | None:
        """The name of the owner of a task, by its id or how that begins, that the options leave out."""
        from ..errors import AmbiguousTask, TaskNotFound
        from ..short_names import owner_name, whole_id

        try:
            owner = self.store.head(whole_id(self.store, task_id, None)).owner
        except (TaskNotFound, AmbiguousTask):
            return None
        return None if self.owner in (None, owner) else owner_name(owner)

    def short_id(self, task_id: str) -> str:
        """A beginning of an id that names the task."""
        from ..short_names import short_id

        return short_id(self.store, task_id)

    @property
    def name(self) -> str:
        """What to call it: nothing secret is in it."""
        return without_password(self.settings.store)

    @property
    def as_json(self) -> bool:
        return self.where.as_json

    @property
    def store(self) -> Store:
        return self.service.store

    def command(self, verb: str, *words: str) -> str:
        """A command line that does `verb` at this place."""
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

    @cached_property
    def artifacts(self) -> ArtifactStore:
        """Where the files are that tasks have made. Raises ConfigError."""
        from ..artifacts import open_artifacts

        return open_artifacts(self.settings.artifacts, tasks_folder(self.data_dir))

    @cached_property
    def operator(self) -> Operator:
        """For what is beside tasks."""
        from .operator import LocalOperator

        return LocalOperator(self)

    def shown_inputs(self, task: Task) -> dict[str, Any] | None:
        """The inputs with secrets hidden; None where the tool, which says what is secret, is not known."""
        if not task.inputs:
            return task.inputs
        if self.app is None or task.tool_name not in self.app.tools:
            return None
        return self.app.tools.get(task.tool_name).masked(task.inputs)

    def say_if_nobody_works(self, task: Task) -> None:
        """Tell the user when a task will wait until somebody starts a worker; an app starts one itself."""
        from .live_workers import say_if_nobody_works

        if self.app is None:
            say_if_nobody_works(self, task.target)

    def close(self) -> None:
        if self.app is not None:
            self.app.close()
        else:
            self.service.close()
            self.store.close()


@contextmanager
def opened(where: Where, *, tools: bool = False, create: bool = False) -> Iterator[Place]:
    """As `open_place`, and closed afterwards."""
    place = open_place(where, tools=tools, create=create)
    try:
        yield place
    finally:
        place.close()


def open_place(where: Where, *, tools: bool = False, create: bool = False) -> Place:
    """Open what the options, the environment or `backburner.toml` name.

    `tools`: the verb needs an app. `create`: a SQLite file that is not there is made; else a
    mistyped name would look like an empty store. Raises typer.BadParameter when nothing is named,
    and what loading the app or opening the store raises.
    """
    import typer

    settings = load_settings(where)
    if where.server:
        return _open_server(where, where.server, settings)
    target = where.target or ("" if where.store and not tools else settings.target)
    if target:
        return _open_app(where, target)
    if tools:
        raise typer.BadParameter(
            "name the app that has the tools: --target lab.py (or set BACKBURNER_TARGET)"
        )
    if not names_a_store(where, settings):
        raise typer.BadParameter(
            "say where to look: --target lab.py, or --store sqlite:///lab.db (or set BACKBURNER_TARGET or"
            " BACKBURNER_STORE, or write either into backburner.toml)"
        )
    return _open_store(where, settings, create=create)


def load_settings(where: Where) -> Settings:
    from ..config import Settings

    return Settings.load("backburner", {"store": where.store})


def load_app(where: Where, target: str) -> Backburner:
    """The app of a target, on the store that the options name, if they do. Raises AppNotFound."""
    from ..target import load, parse, plain_arguments

    target, ours = parse(target), [*sys.argv]
    sys.argv[:] = plain_arguments(target)  # the app may read them, and ours are not meant for it
    try:
        app: Backburner = load(target)
    finally:
        sys.argv[:] = ours
    app.quiet = True
    if where.store:
        app.settings = dataclasses.replace(app.settings, store=where.store)
    return app


def names_a_store(where: Where, settings: Settings) -> bool:
    from ..config import default_store

    return bool(where.store) or settings.store != default_store("backburner", os.environ)


def learn_tools(app: Backburner) -> None:
    """Have the tools of an attached server known: it is asked for its list once, in this process."""
    if app.server is None:
        return
    import anyio

    from ..mcp.adapters.listing import learn_tools

    anyio.run(learn_tools, app)


def _open_server(where: Where, server: str, settings: Settings) -> Place:
    """A server elsewhere. It is reached with the first question."""
    import typer

    from .remote_place import open_server

    if where.target or where.store:
        raise typer.BadParameter("name a server, or an app or a store; not both")
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
    from ..artifacts import open_artifacts
    from ..errors import StoreError
    from ..service import TaskService
    from ..stores import open_store
    from ..stores.sqlite import sqlite_path
    from ..tools import Registry

    if settings.store.startswith("sqlite:///") and not create and not sqlite_path(settings.store).exists():
        reason = "there is no such file; `backburner migrate` makes a new store"
        raise StoreError(store=settings.store, reason=reason)
    store = open_store(settings.store, synchronous=settings.sqlite.synchronous)
    folder = data_dir(settings, store.url)
    artifacts = open_artifacts(settings.artifacts, tasks_folder(folder))
    service = TaskService(store, Registry(), settings, remove_files=artifacts.remove)
    return Place(where, settings, service, folder)
