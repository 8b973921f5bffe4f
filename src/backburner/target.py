"""Targets: how another process finds an app. `file:/path/lab.py#lab` or `module:pkg.lab#lab`.

After the `#` stands the name of the app; or a dot and what the module holds: an app, a server that one is
attached to, or a function that makes one.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib.util
import inspect
import sys
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from .errors import AppNotFound
from .tools import Registry

#: Set while a runner's process loads an app. Its server has read and checked its settings already, and most
#: tools need none: reading them would cost each new runner time and memory.
FOR_RUNNER: contextvars.ContextVar[bool] = contextvars.ContextVar("backburner_for_runner", default=False)

#: How the module of an app file is named when it is imported by its path; no import finds it by that name.
FILE_MODULE = "backburner_app_"


@dataclass
class Loading:
    """What is going on in `load`: the apps that were made meanwhile, and whether one of them was to serve."""

    target: str
    apps: list[Any] = field(default_factory=list)
    served: bool = False


#: The load that is under way.
LOADING: contextvars.ContextVar[Loading | None] = contextvars.ContextVar("backburner_loading", default=None)

#: Every app of this process.
APPS: weakref.WeakSet[Any] = weakref.WeakSet()

#: The apps that were made while a module was imported, by the module's name.
_apps_of: dict[str, list[Any]] = {}


class NotServedHere(SystemExit):
    """An app is being loaded, not served: what would serve it leaves, and `load` goes on."""


def refuse_to_serve_while_loading() -> None:
    """Raises NotServedHere in a process that imports an app that serves when it is imported."""
    loading = LOADING.get()
    if loading is not None:
        loading.served = True
        raise NotServedHere


def parse(text: str, folder: Path | None = None) -> str:
    """A target as a person writes it (`lab.py`, `lab.py:bb`, `pkg.lab:bb`) in its full form.

    A relative path is looked for in `folder`, or else in the working folder.
    """
    if text.startswith(("file:", "module:")):
        return text
    where, _, attribute = text.partition(":")
    if where.endswith(".py") or "/" in where:
        return f"file:{Path(folder or '', where).resolve()}#{attribute and '.' + attribute}"
    return f"module:{where}#{attribute and '.' + attribute}"


def known_files(target: str) -> list[str]:
    """The files of a target's app that are known without importing it."""
    scheme, _, where = target.partition("#")[0].partition(":")
    return [where] if scheme == "file" else []


def plain_arguments(target: str) -> list[str]:
    """What `sys.argv` is for an app that nobody has started with arguments of its own."""
    return [*known_files(target), target][:1]


def load(target: str) -> Any:
    """Import the module of a target and give its app: of that name, by that attribute, or the only one.

    Raises AppNotFound, with the reason. An app file runs with a `__name__` that is not
    `__main__`, so that it does not serve when it is only to be worked on.
    """
    place, _, name = target.partition("#")
    scheme, _, where = place.partition(":")
    with _loading(target) as loading:
        try:
            module = _import_file(Path(where)) if scheme == "file" else _import_module(where)
        except Exception as error:
            raise AppNotFound(target=target, reason=f"{type(error).__name__}: {error}") from error
        made = _apps_of.setdefault(module.__name__, list(loading.apps))
        if name.startswith("."):
            return _by_attribute(module, name[1:], loading)
    held = [value for value in vars(module).values() if _is_app(value)]
    return _only(held, name) or _only(made, name) or _not_one(held or made, name, target)


@contextlib.contextmanager
def _loading(target: str) -> Iterator[Loading]:
    loading = Loading(target)
    token = LOADING.set(loading)
    try:
        yield loading
    finally:
        LOADING.reset(token)


# -- which app it is -------------------------------------------------------------------------------


def _is_app(value: Any) -> bool:
    """Apps are made above this layer, so they are known by what they have: a name and tools."""
    return isinstance(getattr(value, "tools", None), Registry) and isinstance(
        getattr(value, "name", None), str
    )


def app_of(value: Any) -> Any:
    """The app that something is, or that is attached to it; None when it is neither app nor server."""
    return value if _is_app(value) else next((app for app in APPS if app.server is value), None)


def _distinct(apps: list[Any], name: str) -> list[Any]:
    return list({id(app): app for app in apps if not name or app.name == name}.values())


def _only(apps: list[Any], name: str) -> Any:
    found = _distinct(apps, name)
    return found[0] if len(found) == 1 else None


def _not_one(apps: list[Any], name: str, target: str) -> NoReturn:
    named = f" named {name!r}" if name else ""
    count = len(_distinct(apps, name))
    reason = f"it holds {count} apps{named}; name one as file.py:variable, or the function that makes it"
    raise AppNotFound(target=target, reason=reason)


def _by_attribute(module: ModuleType, attribute: str, loading: Loading) -> Any:
    """The app that a module holds by this name, or whose server it holds, or that a function of it makes."""
    try:
        found = attrgetter(attribute)(module)
    except AttributeError:
        raise AppNotFound(target=loading.target, reason=f"there is no {attribute}") from None
    app = app_of(found)
    if app is None and callable(found):
        loading.apps = []
        try:
            value = found()
        except Exception as error:
            reason = f"{attribute}() raised {type(error).__name__}: {error}"
            raise AppNotFound(target=loading.target, reason=reason) from error
        if inspect.iscoroutine(value):
            value.close()
            raise AppNotFound(target=loading.target, reason=f"{attribute} is async; name a plain function")
        app = app_of(value) or _only(loading.apps, "")
    if app is None:
        reason = f"{attribute} is not a Backburner app, nor a server with one, nor a function that makes one"
        raise AppNotFound(target=loading.target, reason=reason)
    return app


# -- importing -------------------------------------------------------------------------------------


def _import_module(name: str) -> ModuleType:
    """A module by its name. For a person it is looked for in the working folder too, as by `python -m`."""
    here = str(Path.cwd())
    if not FOR_RUNNER.get() and here not in sys.path:
        sys.path.insert(0, here)
    spec = importlib.util.find_spec(name)
    if name in sys.modules:  # perhaps by its package
        return sys.modules[name]
    if spec is None:
        raise ModuleNotFoundError(f"No module named {name!r}")
    module = _executed(spec)
    package, _, last = name.rpartition(".")
    if package:
        setattr(sys.modules[package], last, module)
    return module


def _import_file(path: Path) -> ModuleType:
    """A file: as a module of the package that it is in, if it is in one; else as Python does a script."""
    name = FILE_MODULE + "".join(char if char.isalnum() else "_" for char in str(path))
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"there is no Python file {path}")
    root, dotted = _in_package(path)
    if not dotted:
        sys.path.insert(0, str(path.parent))
        return _executed(spec)
    sys.path.insert(0, str(root))
    sys.path.append(str(path.parent))  # it may have been written as a script all the same
    return _import_module(dotted)


def _in_package(path: Path) -> tuple[Path, str]:
    """The folder to import a file's package from, and the name of its module there; empty if it has none."""
    folder, parts = path.parent, [] if path.name == "__init__.py" else [path.stem]
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    own = len(parts) > 1 or path.name == "__init__.py"
    other = sys.modules.get(parts[0]) if parts else None
    taken = other is not None and str(folder / parts[0]) not in getattr(other, "__path__", ())
    usable = own and not taken and not any("." in part for part in parts)
    return folder, ".".join(parts) if usable else ""


def _executed(spec: ModuleSpec) -> ModuleType:
    """A new module, run. One that serves when it is imported has made its app by then, and stays."""
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    assert spec.loader is not None, "a module has one"
    try:
        spec.loader.exec_module(module)
    except BaseException:
        loading = LOADING.get()
        if loading is None or not loading.served:
            del sys.modules[spec.name]
            raise
    return module
