"""Targets: how they are written, and what loading one finds."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from backburner.errors import AppNotFound, ConfigError, NoTarget
from backburner.tools.targets import load, parse

FACTORY = """
from backburner import Backburner


def make():
    return Backburner("lab", store="sqlite://")


async def make_later():
    return make()


def break_off():
    raise RuntimeError("no licence")


class Lab:
    make = staticmethod(make)
    number = 5
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "lab.py"
    path.write_text(FACTORY)
    return path


@pytest.mark.parametrize("attribute", ["make", "Lab.make"])
def test_a_target_may_name_a_function_that_makes_the_app(file: Path, attribute: str) -> None:
    app = load(parse(f"{file}:{attribute}"))
    assert (app.name, app.target) == ("lab", f"file:{file}#.{attribute}")


@pytest.mark.parametrize(
    ("attribute", "reason"),
    [
        ("", "0 apps"),
        (":mkae", "there is no mkae"),
        (":make_later", "async"),
        (":break_off", "break_off\\(\\) raised RuntimeError: no licence"),
        (":Lab.number", "not a Backburner app"),
    ],
)
def test_a_target_that_leads_to_no_app_says_why(file: Path, attribute: str, reason: str) -> None:
    with pytest.raises(AppNotFound, match=reason):
        load(parse(f"{file}{attribute}"))


def test_a_factory_that_was_called_at_import_needs_no_target_when_it_is_called_again(file: Path) -> None:
    file.write_text(FACTORY + "apps = [make()]\n")
    first = load(parse(str(file)))
    assert load(parse(str(file))) is first
    (module,) = (each for each in sys.modules.values() if getattr(each, "__file__", None) == str(file))
    again = module.make()
    assert again is not first
    assert again.target == first.target == f"file:{file}#lab"


def test_an_app_of_a_test_is_refused_only_when_it_is_served() -> None:
    from backburner import Backburner

    app = Backburner("lab", store="sqlite://")
    with pytest.raises(NoTarget, match=r"test_target\.py, line \d+"):
        app.mcp_server()
    with pytest.raises(ConfigError, match="leads to nothing"):
        Backburner("lab", store="sqlite://", target="lab_that_is_not_there.py:make")


@pytest.mark.parametrize("serve", ["bb.run()", "raise_if_reached()"])
def test_a_file_that_serves_at_its_end_is_loaded_all_the_same(tmp_path: Path, serve: str) -> None:
    file = tmp_path / "serving.py"
    file.write_text(f"{FACTORY}\nbb = make()\n{serve}\n")
    if serve == "bb.run()":
        assert load(parse(str(file))).name == "lab"
    else:
        with pytest.raises(AppNotFound, match="NameError"):
            load(parse(str(file)))
