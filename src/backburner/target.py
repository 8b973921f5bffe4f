"""Targets: how another process finds an app. `file:/path/lab.py#lab` or `module:pkg.lab#lab`."""

from __future__ import annotations

import contextvars
import importlib
import importlib.util
import sys
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from .errors import AppNotFound
from .tools import Registry

#: Set while a runner's process loads an app. Its server has read and checked its settings already, and most
#: tools need none: reading them would cost each new runner time and memory.
FOR_RUNNER: contextvars.ContextVar[bool] = contextvars.ContextVar("backburner_for_runner", default=False)

#: How the module of an app file is named when it is imported by its path; no import finds it by that name.
_FILE_MODULE = "backburner_app_"


def target_of_caller(frame: FrameType | None, name: str) -> str:
    """The target of the app `name` that the caller of `frame` is making; empty when that has no file."""
    caller = None if frame is None else frame.f_back
    scope = {} if caller is None else caller.f_globals
    spec = scope.get("__spec__")
    module = scope.get("__name__", "")
    importable = "" if spec is None or spec.name.startswith(_FILE_MODULE) else spec.name
    if importable and (module != "__main__" or scope.get("__package__")):
        return f"module:{importable}#{name}"
    file = scope.get("__file__")
    return f"file:{Path(file).resolve()}#{name}" if file else ""


def parse(text: str) -> str:
    """A target as a person writes it (`lab.py`, `lab.py:bb`, `pkg.lab:bb`) in its full form."""
    if text.startswith(("file:", "module:")):
        return text
    where, _, attribute = text.partition(":")
    if where.endswith(".py") or "/" in where:
        return f"file:{Path(where).resolve()}#{attribute and '.' + attribute}"
    return f"module:{where}#{attribute and '.' + attribute}"


def known_files(target: str) -> list[str]:
    """The files of a target's app that are known without importing it."""
    scheme, _, where = target.partition("#")[0].partition(":")
    return [where] if scheme == "file" else []


def plain_arguments(target: str) -> list[str]:
    """What `sys.argv` is for an app that nobody has started with arguments of its own."""
    return [*known_files(target), target][:1]


def load(target: str) -> Any:
    """Import the module of a target and give its app: of that name, of that attribute, or the only one.

    Raises AppNotFound, with the reason. An app file runs with a `__name__` that is not
    `__main__`, so that it does not serve when it is only to be worked on.
    """
    place, _, name = target.partition("#")
    scheme, _, where = place.partition(":")
    try:
        module = _import_file(Path(where)) if scheme == "file" else importlib.import_module(where)
    except Exception as error:
        raise AppNotFound(target=target, reason=f"{type(error).__name__}: {error}") from error
    if name.startswith("."):
        found = getattr(module, name[1:], None)
        if not _is_app(found):
            raise AppNotFound(target=target, reason=f"{name[1:]} is not a Backburner app")
        return found
    apps = list({id(value): value for value in vars(module).values() if _is_app(value)}.values())
    if name:
        apps = [app for app in apps if getattr(app, "name", None) == name]
    if len(apps) != 1:
        reason = (
            f"it holds {len(apps)} apps"
            + (f" named {name!r}" if name else "")
            + "; name one as file.py:variable"
        )
        raise AppNotFound(target=target, reason=reason)
    return apps[0]


def _is_app(value: Any) -> bool:
    """Apps are made above this layer, so they are known by what they have: a name and tools."""
    return isinstance(getattr(value, "tools", None), Registry) and isinstance(
        getattr(value, "name", None), str
    )


def _import_file(path: Path) -> ModuleType:
    name = _FILE_MODULE + "".join(char if char.isalnum() else "_" for char in str(path))
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"there is no Python file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))  # as Python does for a script
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
