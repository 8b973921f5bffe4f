"""Each thing is known in one place: a dialect's names in its room, others' private parts behind one door."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "backburner"
ROOMS = SOURCE / "mcp" / "dialects"
DOOR = SOURCE / "mcp" / "sdk.py"

#: What dialects use, but the core protocol has too.
CORE_NAMES = {
    "resultType",
    "ttlMs",
    "requestId",
    "progressToken",
    "subscriptions/listen",
    "inputSchema",
    "outputSchema",
    "structuredContent",
    "isError",
    "readOnlyHint",
    "openWorldHint",
    # AWS Batch's
    "jobId",
    # JSON Schema's
    "additionalProperties",
    "anyOf",
    "exclusiveMinimum",
    "maxItems",
    "maxLength",
    "minLength",
}
#: Underscores that are part of a public interface.
PUBLIC = {"os._exit"}

#: A name, and not a word that anybody may use.
_COINED = re.compile(r".*[^a-z].*")
_CAMELS = re.compile(r"[a-z]+(?:[A-Z][a-z]+)+")
_PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)+")


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


@cache
def code_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def texts_in(path: Path) -> list[str]:
    return list(strings(code_of(path)))


def strings(tree: ast.AST) -> Iterator[str]:
    """The texts in a piece of code, without docstrings."""
    documentation = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.value


def wire_names(room: Path) -> set[str]:
    """The names of a dialect: its constants, and what looks like a method or a key of a protocol."""
    tree = code_of(room / "wire.py")
    constants = {
        text
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.Tuple)
        for text in strings(node.value)
        if _COINED.fullmatch(text)
    }
    spelled = {text for text in strings(tree) if _CAMELS.fullmatch(text) or _PATH.fullmatch(text)}
    return (constants | spelled) - CORE_NAMES


def rooms() -> list[Path]:
    return sorted(path.parent for path in ROOMS.glob("*/wire.py"))


def test_every_dialect_has_both_its_sides_in_its_room() -> None:
    assert [room.name for room in rooms()] == [
        "task_id",
        "task_tools",
        "tasks_2025",
        "tasks_2026",
        "two_stage",
    ]
    for room in rooms():
        assert {"wire.py", "server.py", "client.py"} <= {path.name for path in room.iterdir()}


@pytest.mark.parametrize("room", rooms(), ids=lambda room: room.name)
def test_no_name_of_a_dialect_is_spelled_outside_the_rooms(room: Path) -> None:
    names = wire_names(room)
    assert len(names) > 2, "the room has names"
    elsewhere = [path for path in modules() if ROOMS not in path.parents]
    spelled = [
        f"{path.relative_to(SOURCE)}: {text}"
        for path in elsewhere
        for text in texts_in(path)
        if text in names
    ]
    assert spelled == []


@pytest.mark.parametrize("room", rooms(), ids=lambda room: room.name)
def test_no_name_of_a_dialect_is_spelled_in_another_room_that_does_not_have_it_too(room: Path) -> None:
    names = wire_names(room)
    others = [other for other in rooms() if other != room]
    spelled = [
        f"{path.relative_to(ROOMS)}: {text}"
        for other in others
        for path in sorted(other.rglob("*.py"))
        for text in texts_in(path)
        if text in names - wire_names(other)
    ]
    assert spelled == []


def private_parts(path: Path) -> Iterator[str]:
    """The private names of other modules' things that a module touches."""
    tree = code_of(path)
    own = {
        node.attr if isinstance(node, ast.Attribute) else node.name if hasattr(node, "name") else node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        or (isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Store))
    }
    for node in ast.walk(tree):
        whole = ast.unparse(node) if isinstance(node, ast.Attribute | ast.ImportFrom | ast.Import) else ""
        match node:
            case ast.Attribute(attr=name):
                ours = whole.startswith(("self.", "cls.", "super().")) or name in own
                touched = _is_private(name) and not ours
            case ast.ImportFrom(module=module, names=names):
                touched = _any_private([module or "", *(alias.name for alias in names)])
            case ast.Import(names=names):
                touched = _any_private(alias.name for alias in names)
            case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(whole)), *_]):
                touched = _is_private(whole)
            case ast.Constant(value=str(whole)):
                touched = re.fullmatch(r"[a-z]\w*(?:\.\w+)*\._[a-z]\w*", whole) is not None
            case _:
                touched = False
        if touched and whole not in PUBLIC:
            yield whole


def _any_private(dotted: Iterable[str]) -> bool:
    return any(_is_private(part) for name in dotted for part in name.split("."))


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def test_nothing_private_of_another_module_is_touched_but_through_the_door() -> None:
    touched = [
        f"{path.relative_to(SOURCE)}: {part}"
        for path in modules()
        if path != DOOR
        for part in private_parts(path)
    ]
    assert touched == []


def test_what_the_door_uses_is_looked_for_when_a_server_is_attached_or_a_client_is_made() -> None:
    """Each private name in the door's functions is in one of its lists."""
    tree = code_of(DOOR)
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and _is_private(node.attr)
        if isinstance(node.value, ast.Name)
    }
    assert used
    assert used <= set(strings(tree))
