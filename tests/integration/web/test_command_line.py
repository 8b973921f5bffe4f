"""The command line at a server elsewhere: `--server URL --token …`, through the API and nothing else."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from backburner import open_store
from backburner.cli import main
from backburner.core.reports import Started, Succeeded
from backburner.core.times import SystemClock
from tests import warm
from tests.contracts.store.base import new_task
from tests.contracts.store.outbox import hooks
from tests.deployment import foreign_environment
from tests.integration.web.conftest import PROGRAM, UNKNOWN, Api, Served
from tests.pseudo_terminal import OnTerminal
from tests.services import wait_until

COMMAND = warm.BACKBURNER


@dataclass(frozen=True)
class Done:
    """A verb that has come to its end."""

    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Done]


def done(folder: Path, environment: dict[str, str], *words: str, stdin: str = "") -> Done:
    """Run a verb as the command does, but in this process: to start one takes longer than all it does."""
    with (
        contextlib.chdir(folder),
        pytest.MonkeyPatch.context() as meanwhile,
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        for name in [name for name in os.environ if name.startswith("BACKBURNER_")]:
            meanwhile.delenv(name)
        for name, value in environment.items():
            meanwhile.setenv(name, value)
        meanwhile.setattr(sys, "argv", ["backburner", *words])
        meanwhile.setattr(sys, "stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as exit:
            main()
        return Done(int(exit.value.code or 0), out.getvalue(), err.getvalue())


@pytest.fixture
def run(guarded: str, tmp_path: Path) -> Run:
    """Runs a verb in a folder where there is nothing, as the bearer of a token."""

    def verb(*words: str, token: str = "alice", server: str = guarded) -> Done:
        return done(tmp_path, {"BACKBURNER_TOKEN": f"token-of-{token}"}, *words, "--server", server)

    return verb


@pytest.fixture
def told(run: Run) -> Callable[..., Any]:
    """The JSON that a verb wrote."""

    def verb(*words: str, **given: Any) -> Any:
        said = run(*words, "--json", **given)
        assert said.returncode == 0, said.stderr
        return json.loads(said.stdout)

    return verb


def test_tasks_are_looked_at(
    by: Callable[[str], Api], run: Run, told: Callable[..., Any], tmp_path: Path
) -> None:
    task_id = by("alice").finished("count", n=3, key="hush")
    assert task_id in [
        one["task_id"] for one in told("ls", "--tool", "count", "--state", "succeeded")["tasks"]
    ]
    shown = told("show", task_id[4:26])  # by how it begins
    assert shown["task_id"] == task_id
    assert shown["inputs"]["key"] == "***"
    assert [one["signal"] for one in shown["events"]] == ["submit", "claim", "start", "succeed"]
    assert run("logs", task_id).stdout.splitlines() == ["step 1", "step 2", "step 3"]
    assert told("result", task_id)["result"] == {"counted": 3, "key_chars": 4}
    assert run("artifacts", "get", task_id, "-o", "files").returncode == 0
    assert (tmp_path / "files" / "digits.txt").read_bytes() == b"0123456789" * 100


def test_tasks_are_steered(by: Callable[[str], Api], run: Run, told: Callable[..., Any]) -> None:
    alice = by("alice")
    waiting = alice.submit("wait")
    alice.until(waiting, lambda task: task["state"] == "running")
    assert run("cancel", waiting, "--reason", "enough").returncode == 0
    assert "cancelled" in run("watch", waiting).stderr
    failed = alice.finished("fail")
    assert told("retry", failed)["task_id"] == failed
    assert run("result", failed, "--wait").returncode == 1
    asking = alice.submit("ask")
    alice.until(asking, lambda task: task["state"] == "input_required")
    assert run("answer", asking, "name=Ada").returncode == 0
    assert run("result", asking, "--wait").stdout == "Hello, Ada!\n"


def test_errors_are_those_of_the_server(by: Callable[[str], Api], run: Run, guarded: str) -> None:
    task_id = by("alice").finished("count")
    for words, token in ((("show", task_id), "bob"), (("show", UNKNOWN), "alice")):
        refused = run(*words, token=token)
        assert refused.returncode == run("show", UNKNOWN).returncode != 0
        assert "There is no task" in refused.stderr
    assert "has the role read" in run("cancel", task_id, token="alices-screen").stderr
    assert "bearer token is required" in run("ls", token="nobody").stderr
    assert "not both" in run("ls", "--store", "sqlite:///x.db").stderr
    for server, code, said in (
        ("http://127.0.0.1:9", 4, "cannot be reached"),
        ("http://[::1", 2, "is malformed"),
        (f"{guarded}/elsewhere", 4, "cannot be reached: status 404"),
    ):
        away = run("ls", server=server)
        assert (away.returncode, said in away.stderr) == (code, True), away.stderr


def test_a_line_of_fifty_megabytes_is_shown_as_lines_and_steers_nothing(
    open_server: Served, local: Api, tmp_path: Path
) -> None:
    text = "[red]\x1b[2J\x9b31m\u202e<b>" + "x" * 10_000
    task_id = local.submit("long_line", chars=50_000_000, text=text)
    assert wait_until(lambda: local.get(f"/tasks/{task_id}")["state"] == "succeeded", within=60)
    here = "--store", open_server.deployment.environment["BACKBURNER_STORE"]
    there = "--server", local.address
    shown = done(tmp_path, {}, "logs", task_id, *here)
    lines = shown.stdout.splitlines()
    assert (shown.returncode, lines[-1]) == (0, "after")
    assert {one for one in set(shown.stdout) if not one.isprintable()} == {"\n"}
    assert max(map(len, lines)) < 2 * 16_384
    assert lines[0].startswith("[red]\\x1b[2J\\x9b31m\\u202e<b>xxx")
    assert sum(map(len, lines)) > 50_000_000
    for place in (here, there):
        page = done(tmp_path, {}, "logs", task_id, "--json", *place)
        assert (page.returncode, len(page.stdout) < 200 * 2 * 16_384) == (0, True)
        data_dir = {"BACKBURNER_DATA_DIR": str(open_server.deployment.data_dir)}
        shown = done(tmp_path, data_dir, "status", *place)
        assert (shown.returncode, len(shown.stdout) < 100_000) == (0, True)


# -- beside tasks


def test_what_there_is_is_told_in_the_words_of_the_machine(open_server: Served, tmp_path: Path) -> None:
    """The same verb on the server's own store, and through its API: the same text."""
    settings = {k: v for k, v in open_server.deployment.environment.items() if k.startswith("BACKBURNER_")}

    def here(*words: str) -> str:
        said = done(tmp_path, settings, *words, "--store", settings["BACKBURNER_STORE"])
        assert said.returncode == 0, said.stderr
        return said.stdout

    def there(*words: str) -> str:
        said = done(tmp_path, {}, *words, "--server", open_server.address)
        assert said.returncode == 0, said.stderr
        return said.stdout

    for words in (("webhooks", "ls"), ("webhooks", "ls", "--json")):
        assert here(*words) == there(*words), words
    assert here("tools", "-t", str(PROGRAM)) == there("tools")
    assert "count" in [one["tool_name"] for one in json.loads(there("tools", "--json"))["tools"]]

    def lasting(text: str) -> Any:
        """Of a picture, what does not pass by."""
        found = json.loads(text)
        found["supervisor"].pop("silent_s")
        found["workers"] = [one["worker_id"] for one in found["workers"]]
        names = ("supervisor", "states", "queues", "workers", "tools", "clients", "retired", "questions")
        return [found[name] for name in names]

    assert lasting(here("status", "--json")) == lasting(there("status", "--json"))
    assert here("status").split()[4:9] == there("status").split()[4:9]


def test_who_sees_one_owner_s_tasks_is_not_told_of_machines(told: Callable[..., Any]) -> None:
    theirs, all_of_it = told("status")["workers"], told("status", token="ops")["workers"]
    assert [one["worker_id"] for one in theirs] == [one["worker_id"] for one in all_of_it]
    known = ("worker_id", "queue", "state", "alive", "current_task_id")
    for one in theirs:
        assert all(value is None for name, value in one.items() if name not in known), one
    assert all(one["host"] for one in all_of_it)
    supervisor = told("status")["supervisor"]
    assert (supervisor.pop("state"), set(supervisor.values())) == ("working", {None})
    assert told("status", token="wall")["supervisor"]["pid"] > 0


def test_queues_are_paused_by_who_may(run: Run, told: Callable[..., Any]) -> None:
    refused = run("queue", "pause", "gpu_small")
    assert "has the role operate" in refused.stderr
    assert told("queue", "pause", "gpu_small", token="ops") == {"queue": "gpu_small", "paused": True}
    assert [one["queue"] for one in told("status")["queues"] if one["paused_at"]] == ["gpu_small"]
    assert told("queue", "resume", "gpu_small", token="ops") == {"queue": "gpu_small", "paused": False}
    unknown = run("queue", "pause", "none", token="ops")
    assert (unknown.returncode, "no queue named 'none'" in unknown.stderr) == (2, True)


def test_what_endpoints_were_not_told_is_listed_and_sent_again(
    guarded_server: Served, by: Callable[[str], Api], run: Run, told: Callable[..., Any]
) -> None:
    with contextlib.closing(open_store(guarded_server.deployment.environment["BACKBURNER_STORE"])) as store:
        owner = by("alice").get("/me")["owner"]
        new = new_task(SystemClock(), owner=owner, queue="of-nobody", **hooks("succeeded"))
        store.submit(new)
        lease = store.claim_task(new.task_id, "w1")
        assert lease is not None
        store.report(lease, Started(), Succeeded("1"))
        (due,) = store.deliveries(owner)
        store.not_delivered(due, "it answered 410", None)
    (listed,) = told("webhooks", "ls")["deliveries"]
    assert (listed["webhook_id"], listed["given_up"]) == (due.delivery_id, True)
    assert told("webhooks", "ls", token="bob")["deliveries"] == []
    assert told("webhooks", "ls", "--owner", "alice", token="ops")["deliveries"] == [listed]
    assert told("webhooks", "retry", due.delivery_id, token="bob")["retried"] == []
    assert "has the role read" in run("webhooks", "retry", token="alices-screen").stderr
    assert told("webhooks", "retry")["retried"] == [due.delivery_id]


def test_what_was_learned_of_clients_is_forgotten_by_who_may(run: Run, told: Callable[..., Any]) -> None:
    assert "has the role operate" in run("client", "reset").stderr
    assert told("client", "reset", "no-such-host", token="ops") == {"forgotten": 0}


# -- starting tasks


def test_tasks_are_submitted_as_on_the_machine(run: Run, told: Callable[..., Any]) -> None:
    words = (
        "call",
        "--detach",
        "count",
        "n=2",
        "--tag",
        "a:b",
        "--priority",
        "5",
        "--max-runtime",
        "30m",
        "--ttl",
        "1h",
    )
    made = told(*words, "--idempotency-key", "once")
    assert made["created"]
    again = told(*words, "--idempotency-key", "once")
    assert (again["task_id"], again["created"], again.keys()) == (made["task_id"], False, made.keys())
    shown = told("show", made["task_id"])
    assert (shown["tags"], shown["priority"], shown["ttl_s"]) == (["a:b"], 5, 3600)
    assert shown["resources"]["max_runtime_s"] == 1800
    other = run("call", "--detach", "count", "n=3", "--idempotency-key", "once")
    assert (other.returncode, "idempotency" in other.stderr) == (2, True)
    for bad, code, said in (
        (("nothing",), 2, "named 'nothing'. Known ones: ask, ask_anything, ask_so, bar, count"),
        (("count", "n=many"), 2, "n"),
        (("count", "--queue", "none"), 2, "no queue named 'none'"),
        (("count", "--owner", "bob"), 2, "belongs to the owner of the token"),
        (("count", "--max-runtime", "soon"), 2, "max_runtime"),
    ):
        refused = run("call", "--detach", *bad)
        assert (refused.returncode, said in refused.stderr) == (code, True), refused.stderr


def test_a_call_is_seen_through_and_has_its_exit_code(run: Run) -> None:
    called = run("call", "count", "n=2", "key=hush")
    assert (called.returncode, json.loads(called.stdout)) == (0, {"counted": 2, "key_chars": 4})
    assert "step 1\nstep 2\n" in called.stderr
    assert "artifact digits.txt: backburner artifacts get tsk_" in called.stderr
    failed = run("call", "fail", "reason=enough")
    assert (failed.returncode, failed.stdout, "enough" in failed.stderr) == (1, "", True)
    late = run("call", "wait", "--timeout", "0.2s", "--json")
    task = json.loads(late.stdout)
    assert (late.returncode, "it continues" in late.stderr) == (5, True)
    assert run("cancel", task["task_id"]).returncode == 0


def test_ctrl_c_only_stops_the_watching(guarded: str, run: Run, told: Callable[..., Any]) -> None:
    environment = {**foreign_environment(), "BACKBURNER_TOKEN": "token-of-alice"}
    calling = subprocess.Popen(
        [COMMAND, "call", "wait", "--server", guarded], env=environment, stderr=subprocess.PIPE, text=True
    )
    assert calling.stderr is not None
    said = ""
    while "waiting" not in said:
        line = calling.stderr.readline()
        assert line, said
        said += line
    calling.send_signal(signal.SIGINT)
    rest = calling.stderr.read()
    calling.stderr.close()
    assert calling.wait(30) == 130
    (stop,) = [line.split() for line in rest.splitlines() if "stop it:" in line]
    assert stop[-2:] == ["--server", guarded]
    assert told("show", stop[4])["state"] == "running"
    assert run("cancel", stop[4]).returncode == 0


# -- live pictures


@pytest.fixture
def terminal(guarded: str, tmp_path: Path) -> Iterator[Callable[..., OnTerminal]]:
    """Begins a verb on a terminal of its own."""
    environment = {**foreign_environment(), "BACKBURNER_TOKEN": "token-of-alice", "TERM": "xterm-256color"}
    with contextlib.ExitStack() as stack:

        def begin(*words: str) -> OnTerminal:
            shown = OnTerminal([COMMAND, *words, "--server", guarded], tmp_path, environment)
            stack.callback(shown.close)
            return shown

        yield begin


def test_status_and_lists_are_live_until_q(
    by: Callable[[str], Api], guarded: str, terminal: Callable[..., OnTerminal]
) -> None:
    alice = by("alice")
    top, listed = terminal("status", "--watch"), terminal("ls", "--watch", "--active")
    assert guarded in top.wait_for("supervisor working")
    task_id = alice.submit("wait")
    for picture in (top, listed):
        assert task_id[:18] in picture.wait_for(f"{task_id[:18]}.*running")
        picture.type("q")
        assert picture.end() == 0
    alice.post(f"/tasks/{task_id}/cancel")


# -- verbs of the machine


OF_THE_MACHINE = (
    "serve lab.py",
    "worker lab.py",
    "doctor",
    "migrate",
    "prune",
    "supervisor stop",
    "supervisor restart",
)


@pytest.mark.parametrize("words", [*OF_THE_MACHINE, "token ls"])
def test_what_is_of_the_machine_is_refused_in_clear_words(words: str, run: Run) -> None:
    refused = run(*words.split())
    assert refused.returncode == 2
    assert "only on the machine of the server" in " ".join(refused.stderr.replace("│", "").split())
