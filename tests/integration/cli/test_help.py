"""Help, completion and hostile text: what every verb has to do."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from backburner.cli import app
from backburner.cli.command import examples_of
from tests.integration.cli.conftest import Lab, Worker
from tests.integration.cli.test_inputs import unsafe

ROOT: Any = typer.main.get_command(app)


def verbs() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, command in ROOT.commands.items():
        children = getattr(command, "commands", None)
        if children is None:
            found[name] = command
        else:
            found.update({f"{name} {child}": inner for child, inner in children.items()})
    return found


@pytest.mark.parametrize("name", verbs())
def test_the_help_of_every_verb_teaches_by_example(name: str) -> None:
    text, examples = examples_of(verbs()[name])
    assert text
    assert examples
    group = name.split(maxsplit=1)[0]
    assert all(f"backburner {group}" in example for example in examples)


def test_there_are_few_commands() -> None:
    assert len(ROOT.commands) <= 26


def test_help_shows_flags_without_a_type() -> None:
    shown = CliRunner().invoke(app, ["ls", "--help"], env={"TERMINAL_WIDTH": "200"}).output
    assert "--active" in shown
    assert "bool" not in shown


def test_help_and_completion_import_nothing_heavy() -> None:
    heavy = ("mcp", "sqlite3", "psycopg", "jsonschema", "starlette", "anyio", "backburner.app")
    script = f"import sys, backburner.cli; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.slow
def test_the_shell_completes_verbs_tools_states_and_task_ids(lab: Lab, worker: Worker) -> None:
    task_id = lab.submit("add", a=1)

    def complete(line: str) -> str:
        words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
        return lab.run(_BACKBURNER_COMPLETE="complete_bash", **words).stdout

    assert "artifacts" in complete("backburner art")
    assert "relax" in complete("backburner call re")
    assert "timed_out" in complete("backburner ls --state ti")
    assert task_id in complete("backburner show tsk_")


@pytest.mark.slow
def test_no_verb_lets_hostile_text_steer_the_terminal(lab: Lab, worker: Worker) -> None:
    failed = lab.json("call", "hostile", "fail=true", code=1)["task_id"]
    logs = lab.run("logs", failed)
    assert "[bold red]markup[/]" in logs.stdout
    outputs = [
        logs,
        *(lab.run(*words, failed) for words in (["show"], ["show", "--json"], ["artifacts"])),
        *(lab.run(*words) for words in (["ls"], ["status"], ["call", "hostile"], ["call", "speak"])),
        lab.run("artifacts", "get", failed, "-o", "here"),
        lab.run("call", "add", "a\x1b[2J[red]"),
    ]
    for done in outputs:
        assert set(unsafe(done.stdout + done.stderr)) <= {"\n", "\t"}, done
    (fetched,) = (lab.folder / "here").iterdir()
    assert unsafe(fetched.name) == []
