"""What is read in one go stays short."""

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
MOST_LINES_OF_A_FILE = 400
MOST_LINES_OF_A_FUNCTION = 60

FILES = {path.relative_to(SOURCE): path.read_text("utf-8") for path in sorted(SOURCE.rglob("*.py"))}


def functions(code: str) -> Iterator[tuple[str, int]]:
    """Where each function begins, its name, and its lines with its decorators and the functions in it."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            yield f"{first} {node.name}", (node.end_lineno or first) - first + 1


def test_no_file_of_the_source_has_more_than_400_lines() -> None:
    lines = {str(path): len(code.splitlines()) for path, code in FILES.items()}
    assert lines
    assert {path: count for path, count in lines.items() if count > MOST_LINES_OF_A_FILE} == {}


def test_no_function_of_the_source_has_more_than_60_lines() -> None:
    lines = {f"{path}:{name}": count for path, code in FILES.items() for name, count in functions(code)}
    assert lines
    assert {name: count for name, count in lines.items() if count > MOST_LINES_OF_A_FUNCTION} == {}
