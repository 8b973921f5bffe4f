"""What specifications and source documents ask for against the tests that show it, both ways.

A folder of tests has a manifest in `requirements/` for each specification or document. An entry is a
behaviour, the place that asks for it, and the tests that show it, by their paths from that folder. What does
not hold yet, wholly or in part, says so:

    [[requirement]]
    id = "durable-create"
    behaviour = "A task can be got before its CreateTaskResult is returned"
    spec = "ext-tasks: Task Creation"
    tests = ["test_tasks_2026.py::test_a_task_is_durable_before_it_is_returned"]
    missing = "…"

An entry `[[ours]]` has a behaviour and tests only: nobody asks for it but us. `files` says in which files of
the folder every test must be named.
"""

from __future__ import annotations

import ast
import functools
import tomllib
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parents[1]
MANIFESTS = sorted(HERE.glob("*/*/requirements/*.toml"))
SOURCE_DOCUMENTS = HERE / "integration" / "source_documents" / "requirements"
FOLDERS = sorted({manifest.parents[1] for manifest in MANIFESTS})


def read(manifest: Path) -> dict[str, Any]:
    return tomllib.loads(manifest.read_text("utf-8"))


@functools.cache
def cases_in(file: Path) -> dict[str, bool]:
    """Return the names of its tests, each with whether only `make test-whole` runs it."""
    tree = ast.parse(file.read_text("utf-8"))
    assigned = [ast.unparse(each) for each in tree.body if isinstance(each, ast.Assign)]
    all_are = any(line.startswith("pytestmark") and "mark.whole" in line for line in assigned)
    return {
        node.name: all_are or any(ast.unparse(mark) == "pytest.mark.whole" for mark in node.decorator_list)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def case(test: str, folder: Path) -> bool | None:
    """Return whether only `make test-whole` runs a test, or None if there is no such test."""
    file, _, name = test.partition("::")
    return cases_in((folder / file).resolve()).get(name) if (folder / file).is_file() else None


def named_in(manifests: list[dict[str, Any]], kind: str) -> set[str]:
    entries = [entry for content in manifests for entry in content.get(kind, [])]
    return {test for entry in entries for test in entry.get("tests", [])}


def name_of(path: Path) -> str:
    return str(path.relative_to(HERE).with_suffix(""))


@pytest.mark.parametrize("manifest", MANIFESTS, ids=name_of)
def test_every_requirement_has_its_place_and_its_tests_or_says_what_is_missing(manifest: Path) -> None:
    requirements = read(manifest).get("requirement", [])
    ids = [requirement["id"] for requirement in requirements]
    assert len(ids) == len(set(ids))
    for requirement in requirements:
        assert requirement.keys() >= {"id", "behaviour", "spec"}
        assert requirement.keys() & {"tests", "missing"}
        assert requirement.keys() <= {"id", "behaviour", "spec", "tests", "missing"}
        assert all(requirement.values()), requirement["id"]


@pytest.mark.parametrize("manifest", MANIFESTS, ids=name_of)
def test_every_test_that_is_named_exists(manifest: Path) -> None:
    folder, content = manifest.parents[1], read(manifest)
    named = named_in([content], "requirement") | named_in([content], "ours")
    assert {test for test in named if case(test, folder) is None} == set()


@pytest.mark.parametrize("manifest", MANIFESTS, ids=name_of)
def test_every_requirement_is_shown_by_make_test(manifest: Path) -> None:
    shown = {
        requirement["id"]: [case(test, manifest.parents[1]) for test in requirement["tests"]]
        for requirement in read(manifest).get("requirement", [])
        if "tests" in requirement
    }
    assert {id for id, cases in shown.items() if all(cases)} == set()


def test_every_option_of_the_worker_paradigm_has_its_requirement() -> None:
    listed = read(SOURCE_DOCUMENTS / "async_worker_paradigm.toml")["requirement"]
    options = {f"Option {letter}" for letter in "ABCDE"}
    assert {requirement["spec"] for requirement in listed if "tests" in requirement} >= options


def test_what_source_documents_ask_for_in_vain_is_listed_in_the_docs() -> None:
    """A requirement that is missing is a row of the page that says what is not to the letter."""
    page = (HERE.parent / "docs" / "explanation" / "deviations.md").read_text("utf-8")
    rows = {line.split(" | ")[0].removeprefix("| ").casefold() for line in page.splitlines()}
    missing = [
        requirement["behaviour"]
        for manifest in SOURCE_DOCUMENTS.glob("*.toml")
        for requirement in read(manifest).get("requirement", [])
        if "missing" in requirement
    ]
    assert [behaviour for behaviour in missing if behaviour.casefold() not in rows] == []


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_every_test_is_named_by_a_requirement_or_is_ours(folder: Path) -> None:
    manifests = [read(manifest) for manifest in MANIFESTS if manifest.parents[1] == folder]
    asked, ours = named_in(manifests, "requirement"), named_in(manifests, "ours")
    files = {file for content in manifests for name in content.get("files", []) for file in folder.glob(name)}
    there = {f"{file.name}::{name}" for file in files for name in cases_in(file)}
    assert there
    assert there - asked - ours == set()
    assert asked & ours == set()
