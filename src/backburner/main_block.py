"""Finds globals that only the main block of a script sets: processes that run tasks do not run it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

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
