"""`ls`, `show`, `logs`, `artifacts`, `cancel`, `retry`: what there is, and what can be done with it."""

from __future__ import annotations

import contextlib
import json
import re
from datetime import UTC, datetime, timedelta

import pytest

from backburner import open_store
from backburner.core.reports import Failed, HandedBack, Started
from backburner.core.task import TaskError
from backburner.service.names import owner_of
from backburner.store.protocol import Lease, Store
from tests import services
from tests.integration.cli.conftest import Lab, Worker

UNKNOWN = "tsk_" + "0" * 36


def test_an_empty_store_has_no_tasks_and_that_is_no_error(lab: Lab) -> None:
    done = lab.run("ls")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "No tasks.\n")
    assert lab.json("ls") == {"tasks": [], "next_cursor": None}
    assert re.search(r"tasks +none", lab.run("status").stdout)


@pytest.mark.slow
def test_a_status_has_the_fields_that_get_task_status_has(manned: Lab) -> None:
    gate = manned.gate()
    task_id = manned.submit("relax", structure="cu", gate=gate.path)
    manned.wait_for_state(task_id, "running")
    assert services.wait_until(lambda: manned.task(task_id).progress is not None)
    (listed,) = manned.json("ls", "--active", "--tool", "relax", "--since", "1h")["tasks"]
    shown = manned.json("show", task_id)
    gate.open()
    wanted = {
        *("task_id", "state", "tool_name", "attempt", "priority", "queue", "position", "worker_id"),
        *("submitted_at", "started_at", "updated_at", "heartbeat_at", "completed_at", "expires_at"),
        *("progress", "cancel_requested", "timeout_at", "tags", "error", "eta_s", "poll_after_ms"),
    }
    assert wanted <= listed.keys()
    assert wanted | {"inputs", "attempts", "events", "artifacts", "questions"} <= shown.keys()
    assert {"phase", "percent", "step", "step_total", "eta_s", "message"} <= shown["progress"].keys()
    assert [event["to_state"] for event in shown["events"]] == ["queued", "scheduled", "running"]
    manned.wait_for_state(task_id, "succeeded")


def claimed(store: Store, task_id: str) -> Lease:
    lease = store.claim_task(task_id, "w1")
    assert lease is not None
    return lease


def test_a_task_that_was_handed_back_unstarted_is_shown_at_its_first_attempt(lab: Lab) -> None:
    task_id = lab.submit("add", a=1)
    with contextlib.closing(open_store(lab.url)) as store:
        store.report(claimed(store, task_id), HandedBack("Its worker is busy."))
        store.report(claimed(store, task_id), Started())
    assert lab.json("show", task_id)["attempt"] == 1
    assert [task["attempt"] for task in lab.json("ls")["tasks"]] == [1]
    assert re.search(r"attempt +1 of at most", lab.run("show", task_id).stdout)


def test_a_second_attempt_does_not_show_the_error_of_the_first(lab: Lab) -> None:
    task_id = lab.submit("add", a=1)
    with contextlib.closing(open_store(lab.url)) as store:
        lease = claimed(store, task_id)
        store.report(lease, Started(), Failed(TaskError("worker_lost", "Its worker went away.")))
        assert lab.json("show", task_id)["error"]["type"] == "worker_lost"
        store.report(claimed(store, task_id), Started())
    shown = lab.json("show", task_id)
    assert (shown["attempt"], shown["error"]) == (2, None)
    assert [one["error"] and one["error"]["type"] for one in shown["attempts"]] == ["worker_lost", None]


@pytest.mark.slow
def test_filters_choose(lab: Lab, worker: Worker) -> None:
    failed = lab.submit("boom")
    lab.wait_for_state(failed, "failed")
    lab.submit("add", a=1)
    assert [task["task_id"] for task in lab.json("ls", "--state", "failed")["tasks"]] == [failed]
    first = lab.json("ls", "--limit", "1")
    (rest,) = lab.json("ls", "--limit", "1", "--cursor", first["next_cursor"])["tasks"]
    assert rest["task_id"] == failed
    assert lab.json("ls", "--owner", "somebody")["tasks"] == []
    assert len(lab.json("ls", "--all-owners")["tasks"]) == 2
    assert lab.run("ls", "--state", "lost").returncode == 2


def test_an_unknown_task_is_not_found_by_any_verb(lab: Lab) -> None:
    for words in (["show"], ["logs", "-f"], ["cancel"], ["result", "--wait"], ["artifacts", "get"]):
        done = lab.run(*words, UNKNOWN)
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr.startswith("backburner: There is no task")
    error = json.loads(lab.run("retry", "nonsense", "--json").stderr)["error"]
    assert error["code"] == "task_not_found"


@pytest.mark.slow
def test_what_is_hidden_because_of_its_owner_is_told_by_the_owners_name(manned: Lab) -> None:
    alice = owner_of("alice", None, "alice")
    task_id = manned.submit("add", a=1, owner=alice)
    manned.wait_for_state(task_id, "succeeded")
    for words in (["show", task_id], ["artifacts", task_id[:-2]]):
        hidden = manned.run(*words)
        assert (hidden.returncode, hidden.stdout) == (3, "")
        assert "belongs to alice: add --owner alice, or --all-owners" in hidden.stderr
        assert manned.run(*words, "--all-owners").returncode == 0
    shown = manned.run("show", task_id, "--owner", "alice").stdout
    assert re.search(r"^owner +alice *$", shown, re.MULTILINE)
    assert task_id in manned.run("status").stdout
    prune = ("prune", "--older-than", "1d", "--dry-run")
    assert re.search(r"of (an)?other owners? (is|are) left out: --all-owners", manned.run(*prune).stderr)
    assert "--all-owners" not in manned.run(*prune, "--all-owners").stderr


@pytest.mark.slow
def test_an_error_in_one_line_says_what_failed(manned: Lab) -> None:
    task_id = manned.submit("missing")
    manned.wait_for_state(task_id, "failed")
    assert "tool_error: KeyError: 'name'" in manned.run("result", task_id).stderr
    assert "tool_error: KeyError: 'name'" in manned.run("ls").stdout
    refused = manned.run("call", "--detach", "add", "a=1", "c=3")
    assert "'c' was unexpected" in refused.stderr
    assert "known: a, b" in refused.stderr
    hungry = manned.submit("eat")
    manned.wait_for_state(hungry, "failed")
    assert "64 MB" in manned.run("result", hungry).stderr


@pytest.mark.slow
def test_secrets_are_hidden_unless_asked_for(manned: Lab) -> None:
    task_id = manned.submit("fetch", url="here", token="hunter2")
    assert manned.json("show", task_id)["inputs"] == {"url": "here", "token": "***"}
    assert manned.json("show", task_id, "--inputs")["inputs"]["token"] == "hunter2"
    by_store = manned.run("show", task_id, "--store", manned.url, BACKBURNER_TARGET="")
    assert by_store.returncode == 0
    assert "hunter2" not in by_store.stdout


def test_logs_come_by_page_by_tail_and_as_they_are_written(manned: Lab) -> None:
    gate = manned.gate()
    task_id = manned.submit("relax", structure="fe", gate=gate.path)
    following = manned.start("logs", "-f", task_id)
    assert following.stdout is not None
    lines = {following.stdout.readline() for _ in range(2)}
    assert lines == {"reading fe\n", "the forces are large\n"}
    gate.open()
    rest, _ = following.communicate(timeout=30)
    assert (following.returncode, rest) == (0, "done\n")
    page = manned.json("logs", task_id, "--limit", "1")
    assert page.keys() == {"task_id", "lines", "next_cursor", "truncated"}
    assert page["lines"][0].keys() == {"seq", "ts", "stream", "level", "message"}
    after = manned.run("logs", task_id, "--cursor", page["next_cursor"], "--stream", "stdout")
    assert after.stdout.endswith("done\n")
    assert manned.run("logs", task_id, "--tail", "1").stdout == "done\n"


@pytest.mark.slow
def test_artifacts_are_listed_and_fetched_and_checked(lab: Lab, worker: Worker) -> None:
    task_id = lab.submit("relax", structure="cu")
    lab.wait_for_state(task_id, "succeeded")
    assert "opt.traj" in lab.run("artifacts", task_id).stdout
    fetched = lab.run("artifacts", "get", task_id, "opt.traj", "-o", "here")
    assert (fetched.returncode, fetched.stdout) == (0, "here/opt.traj\n")
    assert (lab.folder / "here/opt.traj").read_bytes() == b"positions"
    assert lab.run("artifacts", "get", task_id, "-o", "here").returncode == 2
    assert lab.run("artifacts", "get", task_id, "other.traj").returncode == 3
    (kept,) = lab.folder.glob("lab.db.d/tasks/*/artifacts/*/opt.traj")
    kept.chmod(0o600)
    kept.write_bytes(b"tampered!")
    spoilt = lab.run("artifacts", "get", task_id, "-o", "there")
    assert spoilt.returncode == 4
    assert "has changed in storage" in spoilt.stderr
    assert list((lab.folder / "there").iterdir()) == []


@pytest.mark.slow
def test_a_task_is_cancelled_and_runs_once_more(manned: Lab) -> None:
    gate = manned.gate()
    task_id = manned.submit("relax", structure="cu", gate=gate.path)
    manned.wait_for_state(task_id, "running")
    answer = json.loads(manned.run("cancel", task_id, "--reason", "wrong one", "--json").stdout)
    assert answer == {"task_id": task_id, "state": "cancel_requested", "acknowledged": True}
    assert manned.run("result", task_id, "--wait").returncode == 1
    gate.open()
    retried = manned.run("retry", task_id, "--store", manned.url, BACKBURNER_TARGET="")
    assert retried.returncode == 0
    assert "No workers run" not in retried.stderr
    assert manned.json("result", task_id, "--wait")["state"] == "succeeded"
    assert manned.run("retry", task_id).returncode == 2


def test_places_that_are_wrong_are_told_apart(lab: Lab) -> None:
    (lab.folder / "text.db").write_text("this is no database, it is some text of some length" * 100)
    for words, code, reason in (
        (["ls", "--store", "sqlite:///nowhere.db"], 4, "there is no such file"),
        (["ls", "--store", "sqlite:///text.db"], 4, "text.db"),
        (["ls", "--store", "mysql://x"], 2, "mysql"),
        (["ls", "--target", "nowhere.py"], 2, "there is no Python file"),
        (["ls"], 2, "say where to look"),
    ):
        done = lab.run(*words, BACKBURNER_TARGET="")
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert reason in " ".join(done.stderr.replace("│", " ").split())
    assert not (lab.folder / "nowhere.db").exists()


def test_the_place_can_come_from_the_settings_file(lab: Lab) -> None:
    (lab.folder / "backburner.toml").write_text('target = "lab.py"\n')
    assert "relax" in lab.run("tools", BACKBURNER_TARGET="").stdout


@pytest.mark.slow
def test_a_log_record_of_several_lines_is_printed_as_lines(lab: Lab, worker: Worker) -> None:
    called = lab.run("call", "report")
    assert "first\nsecond\\x1b[2J\n" in called.stderr
    (task,) = lab.json("ls")["tasks"]
    assert lab.run("logs", task["task_id"]).stdout == "first\nsecond\\x1b[2J\n"
    stamped = lab.run("logs", task["task_id"], "--timestamps").stdout
    assert re.fullmatch(r"([\d:.]{12}) first\n\1 second\\x1b\[2J\n", stamped)


@pytest.mark.slow
def test_since_is_local_time(lab: Lab) -> None:
    task_id = lab.submit("add", a=1)
    submitted = datetime.fromtimestamp(lab.task(task_id).submitted_at / 1000, UTC)
    for zone, hours in (("UTC", 0), ("Etc/GMT-5", 5), ("Etc/GMT+7", -7)):  # POSIX counts the other way round
        there = (submitted + timedelta(hours=hours)).replace(tzinfo=None)
        before, after = there - timedelta(minutes=1), there + timedelta(minutes=1)
        assert len(lab.json("ls", "--since", before.isoformat(), TZ=zone)["tasks"]) == 1
        assert lab.json("ls", "--since", f"{after:%Y-%m-%d %H:%M:%S}", TZ=zone)["tasks"] == []
        utc = submitted - timedelta(minutes=1)
        assert len(lab.json("ls", "--since", utc.isoformat(), TZ=zone)["tasks"]) == 1
    assert len(lab.json("ls", "--since", "10m")["tasks"]) == 1
    assert lab.run("ls", "--since", "yesterday").returncode == 2


@pytest.mark.slow
def test_a_mistyped_variable_and_a_missing_settings_file_are_told(lab: Lab) -> None:
    for variable, reason in (
        ({"BACKBURNER_STROE": "sqlite:///other.db"}, "BACKBURNER_STORE may be meant"),
        ({"BACKBURNER_TARGETS": "lab.py"}, "BACKBURNER_TARGET may be meant"),
        ({"BACKBURNER_CONFIG": "nowhere.toml"}, "there is no file nowhere.toml"),
    ):
        done = lab.run("ls", **variable)
        assert (done.returncode, done.stdout) == (2, "")
        assert reason in done.stderr
    assert lab.run("ls", BACKBURNER_OF_SOMEBODY_ELSE="1").returncode == 0
    found = lab.json("doctor", BACKBURNER_OF_SOMEBODY_ELSE="1")["findings"]
    assert [one["message"] for one in found if one["check"] == "variables"] == [
        "unknown variables: BACKBURNER_OF_SOMEBODY_ELSE"
    ]
