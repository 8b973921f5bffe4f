"""Each surface's requirements against its tests, both ways."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
MANIFESTS = sorted((HERE / "requirements").glob("*.toml"))


def cases_in(file: str) -> set[str]:
    found = re.findall(r"^(?:async )?def (test_\w+)", (HERE / file).read_text(), re.MULTILINE)
    return {f"{file}::{name}" for name in found}


def read(manifest: Path) -> dict[str, Any]:
    return tomllib.loads(manifest.read_text())


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
def test_every_requirement_names_tests_that_exist(manifest: Path) -> None:
    requirements = read(manifest)["requirement"]
    ids = [requirement["id"] for requirement in requirements]
    assert len(ids) == len(set(ids))
    for requirement in requirements:
        assert requirement.keys() == {"id", "behaviour", "spec", "tests"}
        assert requirement["behaviour"]
        assert requirement["spec"]
        assert requirement["tests"]
        for test in requirement["tests"]:
            assert test in cases_in(test.partition("::")[0]), requirement["id"]


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
def test_every_test_of_a_surface_is_named_by_a_requirement(manifest: Path) -> None:
    content = read(manifest)
    named = {test for requirement in content["requirement"] for test in requirement["tests"]}
    there = {test for file in content["files"] for test in cases_in(file)}
    assert there - named == set()
