"""The docs say what the code does."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from backburner.core.lifecycle import TRANSITIONS
from backburner.tools.targets import load, parse
from tests.hosts import page as hosts

DOCS = Path(__file__).parents[2] / "docs"


def test_the_state_diagram_shows_every_transition_and_no_other() -> None:
    page = (DOCS / "explanation" / "architecture.md").read_text()
    diagram = page.split("stateDiagram-v2")[1].split("```")[0]
    drawn = set(re.findall(r"^ +(\w+) --> (\w+): (\w+)$", diagram, re.MULTILINE))
    allowed = {
        (state, after, signal) for state, moves in TRANSITIONS.items() for signal, after in moves.items()
    }
    assert drawn == {(str(before), str(after), str(signal)) for before, after, signal in allowed}


def test_the_generated_pages_are_up_to_date() -> None:
    generate = runpy.run_path(str(DOCS / "generate.py"))
    for name, text in generate["pages"]().items():
        assert (DOCS / "reference" / f"{name}.md").read_text() == text, name


def test_the_page_about_hosts_shows_what_their_runs_found() -> None:
    text = hosts.PAGE.read_text()
    assert text == hosts.filled_in(text, hosts.Kept.load(hosts.KEPT))


def python_snippets() -> list[Any]:
    found = []
    for page in [DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md"))]:
        blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
        found += [pytest.param(code, id=f"{page.stem}-{number}") for number, code in enumerate(blocks, 1)]
    return found


@pytest.mark.parametrize("code", python_snippets())
def test_every_python_snippet_is_an_app_that_a_runner_can_load(code: str, tmp_path: Path) -> None:
    path = tmp_path / "lab.py"
    path.write_text(code)
    factory = re.search(r'target="lab\.py(:\w+)"', code)
    app = load(parse(f"{path}{factory[1] if factory else ''}"))
    assert len(app.tools) > 0 or app.server is not None


def test_every_decision_is_in_the_list() -> None:
    pages = {path.name for path in (DOCS / "decisions").glob("0*.md")}
    listed = set(re.findall(r"\((0\d+-[\w-]+\.md)\)", (DOCS / "decisions" / "README.md").read_text()))
    assert pages == listed


def test_every_link_between_pages_leads_somewhere() -> None:
    broken = [
        f"{page.relative_to(DOCS.parent)}: {target}"
        for page in [*DOCS.rglob("*.md"), *DOCS.parent.glob("*.md")]
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert broken == []


def test_every_test_that_the_page_on_security_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", (DOCS / "guides" / "security.md").read_text()))
    sources = [file.read_text() for file in (DOCS.parent / "tests").rglob("*.py")]
    there = {name for text in sources for name in re.findall(r"def (test_\w+)\(", text)}
    assert len(named) > 30
    assert named - there == set()
