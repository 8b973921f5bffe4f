"""Backburner: the composition root. A store URL, an engine name and the slow tools make an app."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, overload

from .config import Settings
from .engine import Engine
from .errors import ConfigError
from .service import TaskService
from .store import Store
from .stores import open_store
from .target import target_of_caller
from .tools import Registry, ToolSpec, tool_from_function

F = TypeVar("F", bound=Callable[..., Any])


class Backburner:
    """An app: its slow tools, and where and by whom their tasks are kept and run.

    Nothing is opened or started before it is needed, so that importing an app is free of side
    effects: the server, the supervisor's runners and the command line all do it.

        bb = Backburner("lab", store="sqlite:///lab.db")

        @bb.tool(queue="cpu_heavy", timeout="4h")
        def relax(structure: str, *, ctx: TaskContext) -> dict: ...
    """

    def __init__(self, name: str, *, config: str | Path | None = None, **settings: Any) -> None:
        """Settings not given come from the environment and from `config` (`backburner.toml`)."""
        self.name = name
        self.settings = Settings.load(name, settings, file=config)
        self.tools = Registry()
        self.target = target_of_caller(sys._getframe(1), name)
        self._lock = threading.Lock()

    # -- tools

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(self, function: None = None, /, **options: Any) -> Callable[[F], F]: ...

    def tool(self, function: F | None = None, /, **options: Any) -> F | Callable[[F], F]:
        """Mark a function as a slow tool. It stays callable as it is.

        Options: `name`, `description`, `task`, `queue`, `timeout`, `retries`, `estimate`, `answer`,
        `ttl`, `isolation`, `idempotent`, `cpu`, `memory_mb`, `scratch_mb`, `secrets`.
        """

        def mark(function: F) -> F:
            self.add_tool(tool_from_function(function, **options))
            return function

        return mark if function is None else mark(function)

    def add_tool(self, spec: ToolSpec) -> None:
        """Add a tool that is described already. Raises ToolDefinitionError and ConfigError."""
        if spec.queue is not None and spec.queue not in self.settings.queues:
            reason = f"{spec.name} wants the queue {spec.queue!r}, which is not configured"
            raise ConfigError(setting="queues", reason=reason)
        self.tools.add(spec)

    # -- the parts, made when first used

    @cached_property
    def store(self) -> Store:
        return open_store(self.settings.store, synchronous=self.settings.synchronous)

    @cached_property
    def engine(self) -> Engine:
        return make_engine(self)

    @cached_property
    def service(self) -> TaskService:
        return TaskService(
            self.store,
            self.tools,
            self.settings,
            target=self.target,
            on_submit=lambda task: self.engine.submit(task),
        )

    @property
    def data_dir(self) -> Path:
        """Where the tasks' folders are."""
        return data_dir(self.settings)

    def start(self) -> None:
        """Open the store and make sure that somebody works on it."""
        with self._lock:
            self.service.changes  # noqa: B018
            self.engine.start()

    def close(self) -> None:
        """Let go of everything. Tasks go on under the supervisor."""
        parts = vars(self)
        for name in ("engine", "service", "store"):
            part = parts.pop(name, None)
            if part is not None:
                part.stop() if name == "engine" else part.close()


def data_dir(settings: Settings) -> Path:
    """`data_dir`, or else a folder that belongs to the store."""
    import hashlib

    if settings.data_dir:
        return Path(settings.data_dir).expanduser().absolute()
    if settings.store.startswith("sqlite:"):
        from .stores.sqlite import files_folder, sqlite_path

        return files_folder(sqlite_path(settings.store))
    from .config import default_store

    import os

    state = Path(default_store("x", os.environ).removeprefix("sqlite:///")).parent
    return state / hashlib.sha256(settings.store.encode()).hexdigest()[:16]


def make_engine(app: Backburner) -> Engine:
    """The engine that the settings name. Raises ConfigError."""
    if app.settings.engine == "local":
        from .engines.local import LocalEngine

        return LocalEngine(app.settings, app.data_dir, app.target, app.store)
    raise ConfigError(setting="engine", reason=f"there is no engine named {app.settings.engine!r}; known: local")
