"""What a person sees in a real terminal, held to snapshots; BACKBURNER_WRITE_SNAPSHOTS=1 writes them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tests import services
from tests.integration.cli.conftest import Lab, Terminal, Worker

SNAPSHOTS = Path(__file__).parent / "snapshots"

#: What differs from one run to the next, each time with what stands for it.
VARYING = (
    (r"(this machine supports) .*", r"\1 …"),
    (r"tsk_[0-9A-Z]{36}", "tsk_" + "X" * 36),
    (r"\b\d[\d.]* (ms|s)\b", "N s"),
    (r" {2,}", "  "),
    (r"pid \d+", "pid N"),
    (r"\d\d:\d\d:\d\d", "00:00:00"),
    (r"backburner \d[\d.]*, Python [\d.]+, SQLite [\d.]+", "backburner N, Python N, SQLite N"),
    (r"[\d.]+ [KMGT]iB free of [\d.]+ [KMGT]iB", "N GiB free of N GiB"),
    (r"the store has .*", "the store has …"),
    (r"version \d+", "version N"),
    (r"\d+ workers", "N workers"),
    (r"gpu_small .*\n", ""),  # where there is a GPU
)


def assert_matches(screen: str, name: str, lab: Lab) -> None:
    shown = screen.replace(str(lab.folder), "/lab")
    for pattern, stands in VARYING:
        shown = re.sub(pattern, stands, shown)
    path = SNAPSHOTS / f"{name}.txt"
    if os.environ.get("BACKBURNER_WRITE_SNAPSHOTS"):
        path.write_text(shown + "\n")
    assert shown + "\n" == path.read_text()


def test_a_call_shows_a_bar_and_ctrl_c_says_how_to_come_back(
    lab: Lab, worker: Worker, terminal: Terminal
) -> None:
    gate = lab.gate()
    terminal.type(f"backburner call relax structure=cu {gate}")
    assert_matches(terminal.wait_for(r"reading cu\n.*Energy decrease stable"), "call_running", lab)
    assert "\x1b[" in terminal.screen(colours=True)
    terminal.key("C-c")
    assert_matches(terminal.wait_for(r"stop it: .*\n\$"), "call_interrupted", lab)
    (task,) = lab.json("ls")["tasks"]
    assert task["state"] == "running"
    terminal.type(f"backburner watch {task['task_id']}; echo code $?")
    terminal.wait_for(r"reading cu\n.*Energy decrease stable")
    gate.open()
    assert_matches(terminal.wait_for(r"code 0\n\$"), "call_finished", lab)


def test_a_list_is_watched_while_it_changes(lab: Lab, worker: Worker, terminal: Terminal) -> None:
    gate = lab.gate()
    terminal.type("backburner ls --watch; echo code $?")
    terminal.wait_for("No tasks.")
    task_id = lab.submit("relax", structure="cu", gate=gate.path)
    assert_matches(terminal.wait_for("42% · relaxation"), "ls_watch_running", lab)
    gate.open()
    assert_matches(terminal.wait_for("succeeded"), "ls_watch_succeeded", lab)
    terminal.key("C-c")
    terminal.wait_for("code 130")
    assert task_id not in terminal.screen()  # the list was on a screen of its own


def test_status_watch_is_live_until_q(lab: Lab, worker: Worker, terminal: Terminal) -> None:
    gate = lab.gate()
    terminal.type("backburner status --watch; echo code $?")
    terminal.wait_for("No active tasks.")
    lab.submit("relax", structure="cu", gate=gate.path)
    assert_matches(terminal.wait_for("42% · relaxation"), "status_running", lab)
    gate.open()
    terminal.wait_for(r"succeeded 1 .*█")
    terminal.key("q")
    terminal.wait_for(r"code 0\n\$")
    assert "QUEUE" not in terminal.screen()  # it was on a screen of its own


def test_a_log_is_followed_to_its_end(lab: Lab, worker: Worker, terminal: Terminal) -> None:
    gate = lab.gate()
    task_id = lab.submit("relax", structure="cu", gate=gate.path)
    terminal.type(f"backburner logs -f {task_id}; echo code $?")
    terminal.wait_for("reading cu")
    gate.open()
    assert_matches(terminal.wait_for(r"code 0\n\$"), "logs_followed", lab)


def test_doctor_reports_a_healthy_place_and_a_dead_supervisor(
    lab: Lab, worker: Worker, terminal: Terminal
) -> None:
    terminal.type("backburner doctor; echo code $?")
    assert_matches(terminal.wait_for(r"code 0\n\$"), "doctor_healthy", lab)
    task_id = lab.submit("relax", structure="cu", gate=lab.gate().path)
    lab.wait_for_state(task_id, "running")
    worker.process.kill()
    assert services.wait_until(lambda: worker.process.poll() is not None)
    terminal.type("backburner doctor; echo code $?")
    assert_matches(terminal.wait_for(r"code 4\n\$"), "doctor_dead_supervisor", lab)


def test_an_answer_is_asked_of_the_person_at_the_terminal(
    lab: Lab, worker: Worker, terminal: Terminal
) -> None:
    task_id = lab.submit("ask")
    lab.wait_for_state(task_id, "input_required")
    terminal.type(f"backburner answer {task_id}")
    terminal.wait_for(r"Which element\?\nelement:")
    terminal.key("29")
    terminal.key("Enter")
    lab.wait_for_state(task_id, "succeeded")
    assert lab.task(task_id).result == "accept {'element': '29'}"


def test_ctrl_c_at_a_worker_lets_its_task_finish(lab: Lab, terminal: Terminal) -> None:
    gate = lab.gate()
    task_id = lab.submit("relax", structure="cu", gate=gate.path)
    terminal.type("backburner worker lab.py; echo code $?")
    lab.wait_for_state(task_id, "running")
    terminal.key("C-c")
    terminal.wait_for(r"\^C")
    gate.open()
    terminal.wait_for("code 0")
    assert (lab.task(task_id).state, lab.task(task_id).attempt) == ("succeeded", 1)


def test_no_colour_is_used_where_none_is_wanted(lab: Lab, terminal: Terminal) -> None:
    terminal.type("NO_COLOR=1 backburner doctor; echo code $?")
    terminal.wait_for("code 0")
    assert re.search(r"\x1b\[[0-9;]*3[1-7]m", terminal.screen(colours=True)) is None
