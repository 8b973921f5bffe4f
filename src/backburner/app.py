"""Backburner: the composition root. A store URL, an engine name and the slow tools make an app."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import hashlib
import inspect
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from .core.files import tasks_folder
from .engines.protocol import Engine
from .errors import BackburnerError, ConfigError
from .observability.logging import say
from .service.tasks import TaskService
from .settings import Settings, state_folder, without_password
from .store import open_store, store_is_there
from .store.artifacts import ArtifactStore, open_artifacts
from .store.protocol import Store
from .tools import targets
from .tools.spec import Registry, ToolSpec, tool_from_function
from .tools.targets import APPS, FOR_RUNNER, LOADING, refuse_to_serve_while_loading

if TYPE_CHECKING:
    from .engines.local.processes.launches import OwnLaunch
    from .service.operator import OperatorService
    from .tools.targets import LostGlobal


log = logging.getLogger("backburner.app")

F = TypeVar("F", bound=Callable[..., Any])
Part = TypeVar("Part")


class MadeOnce(cached_property[Part]):
    """A part of an app that is made when it is first used; threads that want it at that moment share it.

    Since Python 3.12 a `cached_property` lets each of them make one of its own.
    """

    @overload
    def __get__(self, app: None, owner: type[Any] | None = None) -> Self: ...

    @overload
    def __get__(self, app: object, owner: type[Any] | None = None) -> Part: ...

    def __get__(self, app: Any, owner: type[Any] | None = None) -> Self | Part:
        if app is None:
            return self
        with app.making:
            part: Part = super().__get__(app, owner)
        return part


class Backburner:
    """An app: its slow tools, and where and by whom their tasks are kept and run.

    Nothing is opened or started before it is needed, so that importing an app is free of side
    effects: the server, the supervisor's runners and the command line all do it.

        bb = Backburner("lab", store="sqlite:///lab.db")

        @bb.tool(queue="cpu_heavy", timeout="4h")
        def relax(structure: str, *, ctx: TaskContext) -> dict: ...
    """

    def __init__(
        self, name: str, *, target: str | None = None, config: str | Path | None = None, **settings: Any
    ) -> None:
        """Settings not given come from the environment and from `config` (`backburner.toml`).

        `target` is for an app that no import makes: `pkg.server:make` or `server.py:make` names the function
        that does. Raises ConfigError.
        """
        self.name = name
        self._birthplace = targets.birthplace(inspect.currentframe(), name, target)
        self._read_settings = partial(
            Settings.load, name, settings, file=config, folder=self._birthplace.folder
        )
        self.tools = Registry()
        #: Whether it says nothing of itself to stderr: the command line has its own words.
        self.quiet = False
        self._said_where = False
        #: Where the processes that run its tasks find it; empty when they could not.
        self.target = self._birthplace.target
        self._arguments = tuple(sys.argv)  # as they are now: who imports us for others may change them later
        #: The MCP server that offers the tools: the one attached to, or one made when first needed.
        self.server: Any = None
        self._lock = threading.Lock()
        #: Held by the thread that makes a part, which may need others for it.
        self.making = threading.RLock()
        if not FOR_RUNNER.get():
            self.settings = self._read_settings()  # so that a mistake shows at once
        APPS.add(self)
        if (loading := LOADING.get()) is not None:
            loading.apps.append(self)

    @cached_property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._read_settings()

    @classmethod
    def attach(
        cls,
        server: Any,
        slow: str | Sequence[str] | Mapping[str, Mapping[str, Any]] = (),
        *,
        name: str | None = None,
        target: str | None = None,
        config: str | Path | None = None,
        **settings: Any,
    ) -> Backburner:
        """An app for a server that exists: a lowlevel `Server`, an `MCPServer` or a FastMCP 4.

        Its tools whose names match a pattern in `slow` run as tasks, unchanged; a mapping gives
        them options, as `@bb.tool` takes them: `{"index_*": {"timeout": "4h"}}`. Raises NoTarget for an app
        that the processes that run its tasks would not find (see `target` above), ToolDefinitionError for
        wrong options, and ConfigError for wrong settings and for a server that is attached already.
        """
        from .mcp.adapters import install

        app = cls(name or server.name, target=target, config=config, **settings)
        install(app, server, slow)
        return app

    def check_target(self) -> None:
        """Raises NoTarget when the processes that run the tasks would not find this app."""
        refusal = self._birthplace.refusal
        if not self.target and refusal is not None and not targets.not_needed:
            raise refusal

    # -- tools

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(self, function: None = None, /, **options: Any) -> Callable[[F], F]: ...

    def tool(self, function: F | None = None, /, **options: Any) -> F | Callable[[F], F]:
        """Mark a function as a slow tool. It stays callable as it is.

        Raises ToolDefinitionError and ConfigError.

        Options: `name`, `title`, `description`, `task`, `queue`, `timeout`, `retries`, `estimate`, `answer`,
        `ttl`, `isolation`, `cpu`, `memory_mb`, `scratch_mb`, `secrets`, `ask_first`, `asks`, `join`,
        `on_cancel`, `requires_task_id`, `suggest`, `max_running`, `max_starts_per_minute`,
        `concurrency_key`, `max_running_per_key`, `card`, `output_schema`, `read_only`, `destructive`,
        `idempotent`, `open_world`.
        """

        def mark(function: F) -> F:
            self.add_tool(tool_from_function(function, **options))
            return function

        return mark if function is None else mark(function)

    def add_tool(self, spec: ToolSpec) -> None:
        """Add a tool that is described already. Raises ToolDefinitionError and ConfigError."""
        self.check_queue(spec, spec.name)
        self.tools.add(spec)

    def check_queue(self, spec: ToolSpec, name: str) -> None:
        """Raise ConfigError when the tool of that name is for a queue that is not configured."""
        if spec.queue is not None and not FOR_RUNNER.get() and spec.queue not in self.settings.queues:
            known = ", ".join(sorted(self.settings.queues))
            reason = f"{name} wants the queue {spec.queue!r}, which is not configured; known: {known}"
            raise ConfigError(setting="queues", reason=reason)

    # -- serving

    def mcp_server(self) -> Any:
        """The MCP server of this app; one with nothing but its tools if it is attached to none."""
        from .mcp.adapters import new_server

        return new_server(self) if self.server is None else self.server

    def run(self) -> None:
        """Serve MCP over stdio until the client goes. Its tasks go on without it.

        Messages are lines, or have `Content-Length` headers if those of the client do. Raises ConfigError.
        """
        refuse_to_serve_while_loading()
        with _without_collection():
            from .mcp.transport.run import run_stdio
        run_stdio(self)

    def http_app(self, **options: Any) -> Any:
        """An ASGI app with MCP at `/mcp`; it can be mounted in another. Options: see `mcp.serving.http`."""
        from .mcp.transport.http import http_app

        return http_app(self, **options)

    def extend_http_app(self, made: Any, has_auth: bool) -> None:
        """Add API, dashboard, health and metrics to the HTTP app of the attached server's own framework."""
        from .mcp.transport.routes import add_side_routes

        add_side_routes(self, made, has_auth=has_auth)

    # -- the parts, made when first used

    @MadeOnce
    def store(self) -> Store:
        return open_store(self.settings.store, synchronous=self.settings.sqlite.synchronous)

    @MadeOnce
    def artifacts(self) -> ArtifactStore:
        """Storage of the files that its tasks have made."""
        return open_artifacts(self.settings.artifacts, tasks_folder(self.data_dir))

    @MadeOnce
    def engine(self) -> Engine:
        return make_engine(self)

    @MadeOnce
    def launch(self) -> OwnLaunch:
        """Environment of this process, in which its tasks run too; calling it returns its id."""
        from .engines.local.processes.launches import OwnLaunch
        from .version import VERSION

        return OwnLaunch(self.data_dir, self._arguments, VERSION, self.settings)

    @MadeOnce
    def service(self) -> TaskService:
        return TaskService(
            self.store,
            self.tools,
            self.settings,
            target=self.target,
            launch=cache(self.launch),
            remove_files=self.artifacts.remove,
            engine=self.engine,
        )

    @MadeOnce
    def operator(self) -> OperatorService:
        """Queues, workers, statistics, tools, clients and webhooks."""
        return make_operator(self.service, self.data_dir, lambda: self.tools)

    @cached_property
    def data_dir(self) -> Path:
        """Folder of the tasks' files, the supervisor's lock and its log."""
        from .store.sqlite import TEMPORARY

        store = self.settings.store  # it is opened only where that gives it a place
        return data_dir(self.settings, self.store.url if store in TEMPORARY else without_password(store))

    def start(self) -> None:
        """Open the store and make sure that a worker runs its tasks."""
        with self._lock:
            self.engine.start()

    def say_where(self) -> None:
        """Say once, to stderr, where the tasks are kept, in full: a relative path is easily mistaken.

        A script is told which of its globals its tasks do not see.
        """
        if not self.quiet and not self._said_where:
            self._said_where = True
            where = without_password(self.settings.store)
            say(self.settings.log, f"{self.name} keeps its tasks in {where}")
            if self._birthplace.is_script:
                for lost in self.lost_globals():
                    say(self.settings.log, f"warning: {lost}. See docs/start/what-changes.md")

    def lost_globals(self) -> list[LostGlobal]:
        """The globals of its file that tools read and only the main block of a script sets."""
        from .tools.targets import lost_globals

        return lost_globals(self._birthplace.file)

    def resume(self) -> None:
        """Start a worker in the background if tasks wait in the store: for a server that starts.

        Returns at once and never raises. A store that does not exist is not created.
        """
        threading.Thread(target=self._resume, name="backburner-resume", daemon=True).start()

    def _resume(self) -> None:
        try:
            if work_waits(self.settings):
                self.start()
        except (BackburnerError, OSError) as error:
            log.warning("What waits in the store cannot be taken up yet: %s", error)

    def close(self) -> None:
        """Let go of everything. Tasks go on under the supervisor, unless the store was a temporary one."""
        parts = vars(self)
        for name, end in (("engine", "stop"), ("service", "close"), ("store", "close"), ("launch", "close")):
            if name in parts:
                getattr(parts.pop(name), end)()
        parts.pop("artifacts", None)
        parts.pop("operator", None)


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Import without garbage collection, and exempt what was imported from it.

    It would go through the SDK's thousands of classes several times before the first request is answered.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def data_dir(settings: Settings, store_url: str) -> Path:
    """`data_dir`, or else a folder that belongs to the store: beside a file, or in the user's state."""
    if settings.data_dir:
        return Path(settings.data_dir).expanduser().absolute()
    if store_url.startswith("sqlite:"):
        from .store.sqlite import files_folder, sqlite_path

        return files_folder(sqlite_path(store_url))
    return state_folder(os.environ) / hashlib.sha256(store_url.encode()).hexdigest()[:16]


def work_waits(settings: Settings) -> bool:
    """Return whether the store holds waiting or abandoned tasks for a supervisor with these settings.

    Raises ConfigError and StoreError.
    """
    if not store_is_there(settings.store):
        return False
    from .engines.local.supervisor.batch import work_is_left

    with contextlib.closing(open_store(settings.store, synchronous=settings.sqlite.synchronous)) as store:
        return work_is_left(store, settings, held=True)


def make_operator(service: TaskService, data_dir: Path, tools: Callable[[], Registry]) -> OperatorService:
    from .engines.health import supervision_of
    from .service.operator import OperatorService

    def clients() -> list[dict[str, Any]]:
        if not service.store.time_outs():
            return []
        from .mcp.client_timeouts import client_records

        return client_records(service.store, service.settings)

    supervision = partial(supervision_of, service.store, service.settings, data_dir)
    return OperatorService(service, tools=tools, supervision=supervision, clients=clients)


def make_engine(app: Backburner) -> Engine:
    """The engine, or engines, that the settings name."""
    from .engines.local import LocalEngine

    settings = app.settings
    temporary = settings.store == "sqlite://"
    if settings.store.startswith("sqlite:"):
        settings = dataclasses.replace(settings, store=app.store.url)  # as this process understood it
    local = LocalEngine(settings, app.data_dir, app.target, app.store, launch=app.launch, temporary=temporary)
    if not settings.outside_engines:
        return local
    from .engines.external import ExternalEngine

    settings = dataclasses.replace(settings, data_dir=str(app.data_dir))  # jobs are told where it is
    return ExternalEngine(local, settings, app.store)
