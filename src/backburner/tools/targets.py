"""Targets: how another process imports the app. `file:/path/lab.py#lab` or `module:pkg.lab#lab`."""

from __future__ import annotations

import ast
import contextlib
import contextvars
import importlib.util
import inspect
import sys
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from itertools import takewhile
from operator import attrgetter
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NoReturn, TypeGuard

from ..errors import AppNotFound, ConfigError, NoTarget
from .spec import Registry

#: Set while a runner's process loads an app. Its server has read and checked its settings already, and most
#: tools need none: reading them would cost each new runner time and memory.
FOR_RUNNER: contextvars.ContextVar[bool] = contextvars.ContextVar("backburner_for_runner", default=False)

#: How the module of an app file is named when it is imported by its path; no import finds it by that name.
FILE_MODULE = "backburner_app_"


@dataclass
class Loading:
    """State of a running `load`: the apps made so far, and whether one of them tried to serve."""

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
    """Return `sys.argv` for an app that was started without arguments of its own."""
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


_IMPORTABLE = (".py", ".pyc")

#: How many blocks are under way in which no other process has to find an app: `backburner.testing.inline`.
not_needed = 0

#: What an import has made in this process: the file that made an app of a name, and where it is found.
_made: dict[tuple[Path | None, str], Birthplace] = {}


@dataclass(frozen=True, slots=True)
class Birthplace:
    """`target` is where another process finds the app, `file` the file that this names, if there is one.

    Without a target, `refusal` says why, and what to write.
    """

    target: str
    file: Path | None = None
    refusal: NoTarget | None = None

    @property
    def folder(self) -> Path | None:
        return None if self.file is None else self.file.parent

    @property
    def is_script(self) -> bool:
        """Return whether this process runs the file as its script."""
        script = getattr(sys.modules.get("__main__"), "__file__", None)
        return script is not None and self.file == Path(script).resolve()


def birthplace(frame: FrameType | None, name: str, given: str | None = None) -> Birthplace:
    """Of the app `name` that is made in this frame; `given` is the target that its author names.

    Raises ConfigError for a given target that leads to nothing.
    """
    frames = list(_outward(frame))
    own = list(takewhile(_registers_app, frames))
    outward = frames[len(own) :]
    maker = outward[0] if outward else None
    module = next((each for each in outward if each.f_code.co_name == "<module>"), None)
    key = (_file_of(maker), name)
    if given is not None:
        return _named(given, name, maker, at_import=module is not None and _is_run_by_import(module))
    if module is not None and _is_run_by_import(module):
        _made[key] = Birthplace(_target_of(module, name), _file_of(module))
        return _made[key]
    loading = LOADING.get()
    if loading is not None:  # it calls the function that its target names
        return Birthplace(loading.target, _file_in(loading.target) or _file_of(maker))
    call = "Backburner.attach" if any(each.f_code.co_name == "attach" for each in own) else "Backburner"
    again = _made.get(key) if key[0] else None
    return again or Birthplace("", refusal=_refusal(name, call, maker))


def _registers_app(frame: FrameType) -> bool:
    """Return whether the frame is of `Backburner`, or of a server that registers the `Tasks` extension."""
    module = str(frame.f_globals.get("__name__"))
    own = ("backburner.app", "backburner.mcp.adapters.extension", "backburner.mcp.sdk")
    return module in own or module.startswith(("mcp.server.", "fastmcp.server."))


def _outward(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _file_of(frame: FrameType | None) -> Path | None:
    """The file whose code a frame runs, if that is one that can be imported."""
    if frame is None or frame.f_code.co_filename.startswith("<"):
        return None
    file = frame.f_globals.get("__file__")
    path = Path(file).resolve() if isinstance(file, str) else None
    return path if path is not None and path.suffix in _IMPORTABLE and path.is_file() else None


def _file_in(target: str) -> Path | None:
    return next(map(Path, known_files(target)), None)


# -- an app that an import makes -------------------------------------------------------------------


def _is_run_by_import(module: FrameType) -> bool:
    """Return whether an import of the module reaches its current line."""
    file = _file_of(module)
    if file is None:
        return False
    return module.f_globals.get("__name__") != "__main__" or not _is_for_main(file, module.f_lineno)


def _is_for_main(file: Path, line: int) -> bool:
    """Return whether a line runs only `if __name__ == "__main__"`."""
    try:
        statements = ast.walk(ast.parse(file.read_bytes()))
    except (OSError, SyntaxError, ValueError):
        return False
    return any(
        isinstance(each, ast.If)
        and _asks_for_main(each.test)
        and each.body[0].lineno <= line <= (each.body[-1].end_lineno or line)
        for each in statements
    )


def _asks_for_main(test: ast.expr) -> bool:
    parts = list(ast.walk(test))
    named = any(isinstance(part, ast.Name) and part.id == "__name__" for part in parts)
    return named and any(isinstance(part, ast.Constant) and part.value == "__main__" for part in parts)


def _target_of(module: FrameType, name: str) -> str:
    """By the module's name, if that means the same elsewhere; else by its file."""
    importable = _importable_name(module)
    file = _file_of(module)
    loading = LOADING.get()
    by_file = loading is not None and file == _file_in(loading.target)
    is_script = module.f_globals.get("__name__") == "__main__" and not module.f_globals.get("__package__")
    if importable and not by_file and not is_script:
        return f"module:{importable}#{name}"
    return f"file:{file}#{name}"


def _importable_name(frame: FrameType) -> str:
    """The name by which another process, with the same import path, imports the file of this frame."""
    spec, file = frame.f_globals.get("__spec__"), _file_of(frame)
    if spec is None or file is None or spec.name.startswith(FILE_MODULE):
        return ""
    return str(spec.name) if _origin(spec.name) == file else ""


def _origin(name: str) -> Path | None:
    """The file that an import of a module would find now, whatever goes by its name in this process."""
    package = name.rpartition(".")[0]
    path = getattr(sys.modules.get(package), "__path__", None) if package else None
    if package and path is None:
        return None
    for finder in sys.meta_path:
        find: Any = getattr(finder, "find_spec", None)
        spec = None if find is None else find(name, path)
        if spec is not None:
            return None if spec.origin is None else Path(spec.origin).resolve()
    return None


# -- a target that is given ------------------------------------------------------------------------


def _named(given: str, name: str, maker: FrameType | None, *, at_import: bool) -> Birthplace:
    """A file in it is looked for from the folder of the file that names it. Raises ConfigError."""
    near = _file_of(maker)
    target = parse(given, near.parent if near else None)
    place, _, wanted = target.partition("#")
    scheme, _, where = place.partition(":")
    file = Path(where) if scheme == "file" else _origin(where)
    lacks = ""
    if scheme == "file" and not Path(where).is_file():
        lacks = f"there is no file {where}"
    elif scheme == "module" and not _is_there(where.partition(".")[0]):
        lacks = f"there is no module {where}"
    elif maker is not None and file == near and not at_import and wanted.startswith("."):
        attribute = wanted[1:].partition(".")[0]
        lacks = "" if attribute in maker.f_globals else f"{near} has no {attribute}"
    if lacks:
        raise ConfigError(setting="target", reason=f"{given!r} leads to nothing: {lacks}")
    return Birthplace(target if wanted else f"{place}#{name}", file or near)


def _is_there(module: str) -> bool:
    return module in sys.modules or importlib.util.find_spec(module) is not None


# -- an app that no import makes -------------------------------------------------------------------


def _refusal(name: str, call: str, maker: FrameType | None) -> NoTarget:
    file = _file_of(maker)
    if maker is None or file is None:
        where = "where no import finds it (a notebook, an interactive session, exec, a file without .py)"
        return NoTarget(name=name, where=where, advice="put it into a .py file")
    function = maker.f_code.co_qualname
    line = f"{file.name}, line {maker.f_lineno}"
    if function == "<module>":
        where = f'under `if __name__ == "__main__"` ({line})'
    else:
        where = f"in {function}() ({line}), which no import calls"
    plain = function.isidentifier() and function != "main"
    factory = f"{_importable_name(maker) or file.name}:{function if plain else 'make'}"
    advice = (
        "make it at the top level of a module; or in a function without arguments that returns it, and does "
        f'not serve it, and name that: {call}(..., target="{factory}")'
    )
    return NoTarget(name=name, where=where, advice=advice)


_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class LostGlobal:
    """A global that tools read, and the line under `__main__` that sets it."""

    name: str
    file: Path
    line: int

    def __str__(self) -> str:
        return (
            f"{self.file.name}:{self.line} sets {self.name} when the file is run as a script alone; "
            "tasks run in processes that import it, and do not see that value"
        )


def lost_globals(file: Path | None) -> list[LostGlobal]:
    """The globals of a file that tools read and only its main block sets; empty for what cannot be parsed."""
    if file is None or file.suffix != ".py":
        return []
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, ValueError, SyntaxError, RecursionError):
        return []
    found = _Script(tree).lost()
    return [LostGlobal(name, file, line) for name, line in sorted(found.items())]


class _Script:
    """The functions of a module, by whether its import or only its main block leads to them."""

    def __init__(self, tree: ast.Module) -> None:
        self._functions = {node.name: node for node in tree.body if isinstance(node, _Function)}
        self._main = [line for node in tree.body if _is_main_block(node) for line in node.body]
        self._imports = [
            node for node in tree.body if not _is_main_block(node) and not isinstance(node, _Function)
        ]
        self._modules = {
            (alias.asname or alias.name).partition(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
            if alias.name.partition(".")[0] in sys.stdlib_module_names
        }

    def lost(self) -> dict[str, int]:
        by_main = self._reached(self._main)
        # A decorator may hand a function to anyone: a server's tools are called by no name.
        roots = [node for name, node in self._functions.items() if node.decorator_list or name not in by_main]
        by_import = {root.name for root in roots} | self._reached([*self._imports, *roots])
        bodies = (line for each in by_import for line in self._functions[each].body)
        read = {name for line in bodies for name in _read_in(line)} - self._modules
        found: dict[str, int] = {}
        for name, line in self._set_by_main(by_main - by_import):
            if name in read:
                found.setdefault(name, line)
        return found

    def _reached(self, code: Iterable[ast.AST]) -> set[str]:
        """The functions that the code names, and those that these name."""
        found: set[str] = set()
        left = list(code)
        while left:
            for name in _read_in(left.pop()) & self._functions.keys() - found:
                found.add(name)
                left.append(self._functions[name])
        return found

    def _set_by_main(self, functions: Iterable[str]) -> Iterator[tuple[str, int]]:
        for node in self._main:
            yield from _stores(node, local=frozenset())
        for name in functions:
            function = self._functions[name]
            parts = list(ast.walk(function))
            declared = {each for node in parts if isinstance(node, ast.Global) for each in node.names}
            bound = {node.arg for node in parts if isinstance(node, ast.arg)}
            bound |= {node.id for node in parts if isinstance(node, ast.Name) and _is_store(node)}
            yield from _stores(function, local=frozenset(bound - declared))


def _is_main_block(node: ast.stmt) -> TypeGuard[ast.If]:
    return isinstance(node, ast.If) and ast.unparse(node.test).replace('"', "'") == "__name__ == '__main__'"


def _is_store(node: ast.Name | ast.Attribute | ast.Subscript) -> bool:
    return isinstance(node.ctx, ast.Store)


def _read_in(code: ast.AST) -> set[str]:
    return {
        node.id for node in ast.walk(code) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def _stores(code: ast.AST, local: frozenset[str]) -> Iterator[tuple[str, int]]:
    """Each name that is assigned, or whose attribute or item is, without those that are `local`."""
    for node in ast.walk(code):
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and _is_store(node):
            root: ast.AST = node
            while isinstance(root, ast.Attribute | ast.Subscript):
                root = root.value
            if isinstance(root, ast.Name) and root.id not in local:
                yield root.id, node.lineno
