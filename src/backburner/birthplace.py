"""Where an app is made, and so which import makes it again elsewhere; and where none does, what to write."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from types import FrameType
from typing import Any

from .errors import ConfigError, NoTarget
from .target import FILE_MODULE, LOADING, known_files, parse

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
        """Whether this process runs the file as its script."""
        script = getattr(sys.modules.get("__main__"), "__file__", None)
        return script is not None and self.file == Path(script).resolve()


def birthplace(frame: FrameType | None, name: str, given: str | None = None) -> Birthplace:
    """Of the app `name` that is made in this frame; `given` is the target that its author names.

    Raises ConfigError for a given target that leads to nothing.
    """
    frames = list(_outward(frame))
    own = list(takewhile(lambda each: each.f_globals.get("__name__") == "backburner.app", frames))
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
    """Whether an import of the module comes to the line at which it is now."""
    file = _file_of(module)
    if file is None:
        return False
    return module.f_globals.get("__name__") != "__main__" or not _is_for_main(file, module.f_lineno)


def _is_for_main(file: Path, line: int) -> bool:
    """Whether a line is run only `if __name__ == "__main__"`."""
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
