"""The first picture of the README is what a reader sees who copies its example and types its commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Lab, Terminal

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text()
GETTING_STARTED = ROOT / "docs" / "start" / "first-task.md"

#: What differs from one run to the next, each time with what stands for it.
VARYING = (
    (r"tsk_[0-9A-Z]{36}", "tsk_X"),
    (r"[━╸╺]+", "BAR"),
    (r"\d+%", "N%"),
    (r"about [\w. ]+ left", "about N s left"),
    (r"step \d+ of", "step N of"),
)


def picture() -> tuple[str, str, str]:
    """The command that is typed, what is seen while the task runs, and after Ctrl-C."""
    blocks = re.findall(r"^```(\w*)\n(.*?)\n```$", README, re.DOTALL | re.MULTILINE)
    running, stopped = [text for kind, text in blocks if not kind][:2]
    command, _, seen = running.removeprefix("$ ").partition("\n")
    return command, seen, stopped


def form(screen: str) -> str:
    for pattern, stands in VARYING:
        screen = re.sub(pattern, stands, screen)
    return screen


@pytest.fixture
def copied(lab: Lab) -> Lab:
    """A new folder with the README's first example in it, and nothing else."""
    (lab.folder / "lab.py").write_text(re.findall(r"```python\n(.*?)```", README, re.DOTALL)[0])
    assert "Save it as `lab.py`" in README
    del lab.environment["BACKBURNER_TARGET"]
    lab.environment["BACKBURNER_SUPERVISOR__IDLE_EXIT_S"] = "1"
    return lab


def test_the_first_picture_is_what_its_example_does(copied: Lab, terminal: Terminal) -> None:
    command, running, stopped = picture()
    terminal.type(command)
    assert form(terminal.wait_for(r"^count running .* \d\d% counting · about .* left")) == form(running)
    terminal.key("C-c")
    assert form(terminal.wait_for(r"stop it: .*\n\$")) == f"{form(stopped)}\n$"

    (stop,) = re.findall(r"stop it: +(.*)", terminal.screen())
    terminal.type(f"{stop}; echo code $?")
    terminal.wait_for("code 0")
    copied.wait_for_state(stop.split()[2], "cancelled")


def test_the_first_commands_of_getting_started_work_in_an_empty_folder(lab: Lab) -> None:
    guide = GETTING_STARTED.read_text()
    (lab.folder / "lab.py").write_text(re.findall(r"```python\n(.*?)```", guide, re.DOTALL)[0])
    assert "Save this as `lab.py`" in guide
    section = guide.partition("## Call it from the command line")[2]
    lines = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)[0].splitlines()
    assert len(lines) == 2
    for line in lines:
        done = lab.run(*line.split()[1:], BACKBURNER_TARGET="", BACKBURNER_SUPERVISOR__IDLE_EXIT_S="1")
        assert done.returncode == 0, done.stderr


def test_the_numbers_of_the_first_picture_agree() -> None:
    """So many steps are so many percent, and the rest takes about as long as the example sleeps for them."""
    _, running, _ = picture()
    numbers = re.findall(r"(\d+)% .* about (\d+) s left · step (\d+) of (\d+)", running)[0]
    percent, left_s, step, steps = map(int, numbers)
    assert percent == round(100 * step / steps)
    (pace_s,) = map(float, re.findall(r"time\.sleep\(([\d.]+)\)", README))
    assert left_s == pytest.approx(pace_s * (steps - step), rel=0.25)
