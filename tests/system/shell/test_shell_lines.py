"""Every shell line in the README and the docs is run, as its page says."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest

from tests.integration.cli.test_help import verbs
from tests.system.shell.lines import Section, mentioned_verbs, sections
from tests.system.shell.scene import Scene

#: What is not run, each with the reason.
NOT_RUN = {
    r"^pip install ": "the package index is not asked by tests",
    r"^backburner call count steps=500 ": "tests/integration/cli/test_readme.py does it, on a terminal",
    r"^curl ": "tests/integration/web/test_api_page.py does it, with a server that answers",
    r"--server https://lab.example": "tests/integration/web/test_command_line.py does it, with a real server",
    r"^backburner demo": "`make demo` does it; it takes a minute",
    r"^make ": "it would run these very tests",
    r"^systemd-run ": "there is no systemd in a container",
    r"npx some-server|lsp-style-server": "these stand for servers of yours",
    r"--engine celery": "it needs a broker; tests/system/outside does it",
    r"^(dramatiq|celery) ": "the same; and /srv/lab.py stands for an app of yours",
    r"^claude ": "it needs Claude Code",
    r"--install-completion": "it changes the shell of whoever runs it",
}
#: What goes on until Ctrl-C, and what it says when it is there.
GOES_ON = {
    r"backburner worker ": r" works on ",
    r"backburner serve .*--http": r"http://\S+/mcp",
    r" (--watch|-w)\b": r"TASK|No (active )?tasks",
}
TALKS = r"backburner (serve|bridge) "
#: What ends otherwise than well, and what it says then.
ENDS_WITH = {
    r"backburner answer \S+ +#": ((2,), "The task asks: "),
    r"backburner status ": ((0, 1), ""),  # 1 without a supervisor
}
#: The pages whose lines `make test` runs: those that a new user follows.
USUAL = ("README.md", "first-task.md", "two-stage.md", "operating.md", "security.md")
NEEDS_POSTGRES = "postgresql://"


def local(section: Section) -> bool:
    return not any(NEEDS_POSTGRES in line for line in section.lines)


def not_run(line: str) -> bool:
    return any(re.search(pattern, line) for pattern in NOT_RUN)


def run_line(scene: Scene, typed: str) -> None:
    """Run a line in its scene. Raises AssertionError unless it does what a reader expects of it."""
    for pattern, ready in GOES_ON.items():
        if re.search(pattern, typed):
            with contextlib.closing(scene.terminal(typed)) as terminal:
                terminal.wait_for(ready)
                assert terminal.interrupt() in (0, 130), terminal.seen
            return
    if re.search(TALKS, typed):
        assert "serverInfo" in scene.converse(typed)
        return
    done = scene.run(typed)
    expected = (end for pattern, end in ENDS_WITH.items() if re.search(pattern, typed))
    codes, text = next(expected, ((0,), ""))
    assert done.returncode in codes, done.stdout + done.stderr
    assert text in done.stderr


def run_section(scene: Scene, section: Section) -> None:
    broken = []
    for line in section.lines:
        if not_run(line):
            continue
        try:
            typed = scene.typed(line)
            with scene.prepared(typed):
                scene.export(typed) if line.startswith("export ") else run_line(scene, typed)
        except AssertionError as error:
            broken.append(f"$ {line}\n{error}")
    assert not broken, "\n\n".join(broken)


def named(local_ones: bool) -> list[object]:
    return [
        pytest.param(
            section,
            id=str(section).replace(" ", "-"),
            marks=() if str(section).startswith(USUAL) else pytest.mark.whole,
        )
        for section in sections()
        if local(section) == local_ones and not all(map(not_run, section.lines))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("section", named(local_ones=True))
def test_every_line_runs_as_printed(section: Section, tmp_path: Path) -> None:
    with contextlib.closing(Scene(tmp_path, section)) as scene:
        run_section(scene, section)


@pytest.mark.slow
@pytest.mark.parametrize("section", named(local_ones=False))
def test_every_line_runs_as_printed_where_a_store_is_in_postgresql(
    section: Section, tmp_path: Path, postgres_database: str
) -> None:
    with contextlib.closing(Scene(tmp_path, section, postgres_database)) as scene:
        run_section(scene, section)


def test_every_verb_that_a_text_names_is_there() -> None:
    known = set(verbs())
    assert [f"{page}: backburner {name}" for page, name in mentioned_verbs() if name not in known] == []


def test_every_line_that_is_not_run_is_printed_somewhere() -> None:
    printed = [line for section in sections() for line in section.lines]
    unused = [pattern for pattern in NOT_RUN if not any(re.search(pattern, line) for line in printed)]
    assert unused == []
