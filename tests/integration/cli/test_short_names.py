"""Ids by how they begin, owners by their names, and lists that fit a terminal of 80 columns."""

from __future__ import annotations

import contextlib
import re

import pytest

from backburner.service.names import owner_of
from tests.integration.cli.conftest import Lab

ALICE = owner_of("alice", None, "alice")


@pytest.mark.slow
def test_every_verb_takes_the_beginning_of_an_id(lab: Lab) -> None:
    task_id = lab.submit("add", a=1)
    short = task_id[:-4]
    for words, code in (
        (["show", short], 0),
        (["logs", short.removeprefix("tsk_")], 0),
        (["artifacts", short.lower()], 0),
        (["result", short], 5),
        (["watch", short, "--timeout", "0"], 5),
        (["ls", "--parent", short], 0),
        (["answer", short], 2),
        (["cancel", short], 0),
        (["retry", short], 0),
        (["run-task", short, "--store", lab.url], 0),
        (["result", short, "--wait"], 0),
    ):
        done = lab.run(*words, BACKBURNER_SUPERVISOR__IDLE_EXIT_S="1")
        assert done.returncode == code, (words, done.stderr)
    assert lab.json("cancel", short)["task_id"] == task_id


@pytest.mark.slow
def test_a_beginning_of_several_ids_lists_them_and_changes_nothing(lab: Lab) -> None:
    first, second = lab.submit("add", a=1), lab.submit("add", a=2)
    done = lab.run("cancel", "tsk_0")
    assert done.returncode == 2
    assert first in done.stderr
    assert second in done.stderr
    assert lab.task(first).state == "queued"


@pytest.mark.slow
def test_a_beginning_does_not_reach_another_owners_task(lab: Lab) -> None:
    mine, theirs = lab.submit("add", a=1), lab.submit("add", a=2, owner="ann")
    assert lab.run("show", "tsk_0").returncode == 0  # of mine there is one
    assert lab.run("show", theirs[:-2]).returncode == 3
    assert lab.json("show", theirs[:-2], "--owner", "ann")["task_id"] == theirs
    assert lab.json("show", mine[:-2], "--all-owners")["task_id"] == mine


@pytest.mark.slow
def test_a_list_on_80_columns_cuts_nothing_that_is_copied(lab: Lab) -> None:
    ids = {lab.submit("relax", structure="cu", owner=ALICE) for _ in range(3)}
    lab.run("cancel", "--owner", "alice", "--active", "--yes", "--json")
    for words in (["ls", "--owner", "alice"], ["ls", "--all-owners"]):
        with contextlib.closing(lab.terminal(*words)) as terminal:
            assert terminal.end() == 0
        rows = [line for line in _plain(terminal.seen).splitlines() if line.startswith("tsk_")]
        assert all(len(row) <= 80 for row in rows)
        copied = [row.split()[0] for row in rows]
        assert {lab.json("show", word, "--owner", "alice")["task_id"] for word in copied} == ids
        assert all(" cancelled " in row for row in rows)
    assert all(" alice " in row for row in rows)


def _plain(screen: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen)


@pytest.mark.slow
def test_an_owner_is_named_simply_and_a_list_says_what_it_leaves_out(lab: Lab) -> None:
    theirs = lab.submit("add", a=1, owner=ALICE)
    own = lab.run("ls")
    assert own.stderr == "No tasks.\n1 task of another owner is not shown: --all-owners\n"
    assert [task["task_id"] for task in lab.json("ls", "--owner", "alice")["tasks"]] == [theirs]
    lab.submit("add", a=1, owner=owner_of("another-app", "https://issuer.example", "alice"))
    assert "2 tasks of other owners are not shown: --all-owners" in lab.run("ls").stderr
    unclear = lab.run("ls", "--owner", "alice")
    assert unclear.returncode == 2
    assert ALICE in unclear.stderr
    assert [task["task_id"] for task in lab.json("ls", "--owner", ALICE)["tasks"]] == [theirs]
    assert "not shown" not in lab.run("ls", "--all-owners").stderr
