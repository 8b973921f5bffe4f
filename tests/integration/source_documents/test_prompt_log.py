"""The files of the TaskId contract: one whole line for each task, whatever happens in between."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backburner.core.reports import Cancelled, Failed, Outcome, Started, Succeeded
from backburner.core.retry import NO_RETRY
from backburner.core.task import TaskError
from backburner.mcp.dialects.task_id.prompt_log import PromptLog, PromptLogs
from backburner.settings import Settings
from backburner.store import open_store
from backburner.store.protocol import Store
from backburner.testing import FakeClock
from tests.contracts.store.base import new_task

OWNER = "ann"
DONE = Succeeded('"All done"')


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path}/tasks.db", clock=clock)
    yield store
    store.close()


@pytest.fixture
def log(store: Store, tmp_path: Path, clock: FakeClock) -> PromptLog:
    return PromptLog(store, tmp_path / "state", "ui-prompts.jsonl", clock=clock)


def submit(store: Store, clock: FakeClock, log: PromptLog, external_id: str, **given: Any) -> str:
    log.enter(external_id, OWNER, "relax")
    new = new_task(clock, external_id=external_id, retry=NO_RETRY, **given)
    return store.submit(new).task.task_id


def finish(store: Store, task_id: str, outcome: Outcome) -> None:
    lease = store.claim_task(task_id, "worker-1")
    assert lease is not None
    store.report(lease, Started())
    store.report(lease, outcome)


def lines(log: PromptLog) -> list[dict[str, Any]]:
    text = log.log_path.read_text("utf-8") if log.log_path.exists() else ""
    assert text == "" or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines() if line]


def entry(log: PromptLog, external_id: str) -> dict[str, Any]:
    (found,) = [e for e in json.loads(log.state_path.read_text())["mcpTasks"] if e["id"] == external_id]
    return dict(found)


def test_the_end_of_a_task_is_one_line_of_the_documents_shape(
    store: Store, clock: FakeClock, log: PromptLog
) -> None:
    task_id = submit(store, clock, log, "job-1")
    assert log.catch_up() == []
    assert entry(log, "job-1")["status"] == "queued"
    finish(store, task_id, DONE)
    assert log.catch_up() == [task_id]
    assert log.catch_up() == []
    (line,) = lines(log)
    assert line["type"] == "ui_prompt"
    assert line["action"] == "request"
    assert (line["requestId"], line["taskId"], line["jobId"]) == ("job-1", "job-1", task_id)
    assert line["prompt"]["kind"] == "result"
    assert line["prompt"]["markdown"] == "All done"
    shown = entry(log, "job-1")
    assert (shown["id"], shown["taskId"], shown["jobId"]) == ("job-1", "job-1", task_id)
    assert (shown["status"], shown["resultStatus"]) == ("completed", "success")
    assert shown["resultText"] == "All done"
    assert shown["error"] is None
    assert shown["startedAt"]
    assert shown["finishedAt"]


def test_the_task_file_follows_a_task_through_its_states(
    store: Store, clock: FakeClock, log: PromptLog
) -> None:
    task_id = submit(store, clock, log, "job-1")
    lease = store.claim_task(task_id, "worker-1")
    assert lease is not None
    store.report(lease, Started())
    log.catch_up()
    assert entry(log, "job-1")["status"] == "running"
    assert lines(log) == []


@pytest.mark.parametrize(
    ("outcome", "status", "result_status"),
    [
        (Failed(TaskError("tool_error", "Permission denied")), "failed", "error"),
        (Cancelled(TaskError("cancelled", "Permission denied")), "aborted", "aborted"),
    ],
)
def test_a_task_without_a_result_says_why(
    store: Store, clock: FakeClock, log: PromptLog, outcome: Outcome, status: str, result_status: str
) -> None:
    task_id = submit(store, clock, log, "job-1")
    lease = store.claim_task(task_id, "worker-1")
    assert lease is not None
    store.report(lease, Started())
    if isinstance(outcome, Cancelled):
        store.cancel(task_id)
    store.report(lease, outcome)
    log.catch_up()
    shown = entry(log, "job-1")
    assert (shown["status"], shown["resultStatus"], shown["error"]) == (
        status,
        result_status,
        "Permission denied",
    )
    assert "Permission denied" in lines(log)[0]["prompt"]["markdown"]


def test_other_results_are_shown_as_json_and_tool_results_as_their_texts(
    store: Store, clock: FakeClock, log: PromptLog
) -> None:
    plain = submit(store, clock, log, "plain")
    finish(store, plain, Succeeded('{"energy": -3.5}'))
    content = [{"type": "text", "text": "one"}, {"type": "image"}, {"type": "text", "text": "two\nlines"}]
    whole = submit(store, clock, log, "whole", result_kind="call_tool_result")
    finish(store, whole, Succeeded(json.dumps({"content": content})))
    log.catch_up()
    texts = {line["requestId"]: line["prompt"]["markdown"] for line in lines(log)}
    assert texts == {"plain": '```json\n{\n  "energy": -3.5\n}\n```', "whole": "one\n\ntwo\nlines"}


def test_a_crash_after_the_line_and_before_the_task_file_makes_no_second_line(
    store: Store, clock: FakeClock, log: PromptLog
) -> None:
    task_id = submit(store, clock, log, "job-1")
    before = log.state_path.read_bytes()
    finish(store, task_id, DONE)
    log.catch_up()
    log.state_path.write_bytes(before)  # as the crash would have left it
    assert log.catch_up() == []
    assert len(lines(log)) == 1
    assert entry(log, "job-1")["status"] == "completed"


def test_a_line_that_was_cut_off_is_closed_before_the_next(
    store: Store, clock: FakeClock, log: PromptLog
) -> None:
    task_id = submit(store, clock, log, "job-1")
    log.log_path.write_text('{"type":"ui_prompt","action":"req')
    finish(store, task_id, DONE)
    log.catch_up()
    _, whole = log.log_path.read_text().splitlines()
    assert json.loads(whole)["requestId"] == "job-1"


def test_a_log_that_was_put_aside_does_not_bring_back_old_lines(
    store: Store, clock: FakeClock, log: PromptLog
) -> None:
    first = submit(store, clock, log, "job-1")
    finish(store, first, DONE)
    log.catch_up()
    log.log_path.unlink()
    second = submit(store, clock, log, "job-2")
    finish(store, second, DONE)
    log.catch_up()
    assert [line["requestId"] for line in lines(log)] == ["job-2"]


def test_what_others_write_into_the_files_stays(store: Store, clock: FakeClock, log: PromptLog) -> None:
    log.state_path.parent.mkdir()
    foreign = {"id": "theirs", "status": "running"}
    log.state_path.write_text(json.dumps({"windows": [1], "mcpTasks": [foreign]}))
    log.log_path.write_text('{"type":"ui_prompt","action":"response","requestId":"x"}\n')
    finish(store, submit(store, clock, log, "job-1"), DONE)
    log.catch_up()
    state = json.loads(log.state_path.read_text())
    assert state["windows"] == [1]
    assert state["mcpTasks"][0] == foreign
    assert [line["action"] for line in lines(log)] == ["response", "request"]


def test_a_task_that_was_never_submitted_is_withdrawn_or_given_up(
    store: Store, clock: FakeClock, log: PromptLog
) -> None:
    log.enter("refused", OWNER, "relax")
    log.withdraw("refused", OWNER)
    log.enter("crashed", OWNER, "relax")
    clock.advance(59)
    log.catch_up()
    assert entry(log, "crashed")
    clock.advance(2)
    log.catch_up()
    assert json.loads(log.state_path.read_text())["mcpTasks"] == []
    assert lines(log) == []


def test_a_task_that_expired_while_nobody_looked_still_gets_its_line(
    store: Store, clock: FakeClock, log: PromptLog
) -> None:
    task_id = submit(store, clock, log, "job-1", ttl_s=1)
    log.catch_up()
    finish(store, task_id, DONE)
    clock.advance(10)
    store.expire()
    log.catch_up()
    (line,) = lines(log)
    assert line["prompt"]["status"] == "failed"


def test_two_stores_may_share_the_folder(
    tmp_path: Path, clock: FakeClock, store: Store, log: PromptLog
) -> None:
    other_store = open_store(f"sqlite:///{tmp_path}/other.db", clock=clock)
    other = PromptLog(other_store, log.log_path.parent, log.log_path.name, clock=clock)
    mine = submit(store, clock, log, "mine")
    theirs = submit(other_store, clock, other, "theirs")
    clock.advance(100)
    finish(store, mine, DONE)
    finish(other_store, theirs, DONE)
    assert log.catch_up() == [mine]
    assert other.catch_up() == [theirs]
    other_store.close()


@pytest.mark.whole
def test_what_is_unfinished_costs_one_read_however_much_it_is(
    tmp_path: Path, store: Store, clock: FakeClock, log: PromptLog
) -> None:
    task_ids = [submit(store, clock, log, f"t{number}") for number in range(30)]
    log.catch_up()
    finish(store, task_ids[7], DONE)
    counting: Any = CountingStore(store)
    assert PromptLog(counting, tmp_path / "state", "ui-prompts.jsonl").catch_up() == [task_ids[7]]
    assert counting.uses == {"secret": 1, "heads": 1, "get": 1}


class CountingStore:
    """A store, and how often each of its verbs was used."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.uses: Counter[str] = Counter()

    def __getattr__(self, verb: str) -> Any:
        self.uses[verb] += 1
        return getattr(self._store, verb)


@pytest.mark.whole
def test_many_writers_at_once_write_each_line_once(store: Store, clock: FakeClock, log: PromptLog) -> None:
    ids = [submit(store, clock, log, f"job-{number}") for number in range(20)]
    for task_id in ids:
        finish(store, task_id, DONE)
    writers = [PromptLog(store, log.log_path.parent, log.log_path.name) for _ in range(6)]
    threads = [threading.Thread(target=writer.catch_up) for writer in writers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(line["jobId"] for line in lines(log)) == sorted(ids)


def test_the_files_are_for_their_owner_alone(store: Store, clock: FakeClock, log: PromptLog) -> None:
    finish(store, submit(store, clock, log, "job-1"), DONE)
    log.catch_up()
    for path in log.log_path.parent.iterdir():
        assert path.stat().st_mode & 0o077 == 0


_CRASHING = """
import os, signal, sys
from pathlib import Path
from backburner.store import open_store
from backburner.settings import Settings
from backburner.mcp.dialects.task_id.prompt_log import PromptLog
from backburner.mcp.dialects.task_id.prompt_log import PromptLogs

url, folder, step = sys.argv[1:]
os_call = getattr(os, step)
def crash(*arguments, **options):
    if step == "fsync":
        os_call(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)
log = PromptLog(open_store(url), Path(folder), "ui-prompts.jsonl")
setattr(os, step, crash)
log.catch_up()
"""


@pytest.mark.parametrize("step", ["write", "fsync", "fdopen"])
def test_kill_9_at_any_step_leaves_exactly_one_line_after_the_restart(
    tmp_path: Path, store: Store, clock: FakeClock, log: PromptLog, step: str
) -> None:
    """Before the line is written, right after it is on disk, and before the task file says so."""
    task_id = submit(store, clock, log, "job-1")
    finish(store, task_id, DONE)
    command = [
        sys.executable,
        "-c",
        _CRASHING,
        f"sqlite:///{tmp_path}/tasks.db",
        str(log.log_path.parent),
        step,
    ]
    killed = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(lines(log)) == (0 if step == "write" else 1)
    log.catch_up()
    assert [line["jobId"] for line in lines(log)] == [task_id]
    assert entry(log, "job-1")["status"] == "completed"


# -- folders that calls named


def test_stores_that_share_a_folder_keep_each_others_folders_in_mind(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    settings = Settings.load("logs", {"task_id": {"state_roots": [str(tmp_path / "hosts")]}}, environment={})
    other = open_store(f"sqlite:///{tmp_path}/other.db", clock=clock)
    ids = {}
    try:
        logs = {name: PromptLogs(one, settings, tmp_path) for name, one in (("a", store), ("b", other))}
        for name, one in (("a", store), ("b", other)):
            logs[name].enter(str(tmp_path / "hosts" / name), name, OWNER, "relax")
            ids[name] = one.submit(new_task(clock, external_id=name, retry=NO_RETRY)).task.task_id
        assert [log.catch_up() for log in logs.values()] == [[], []]
        for name, one in (("a", store), ("b", other)):
            finish(one, ids[name], DONE)
            assert logs[name].unfinished() == [(ids[name], OWNER)]
            assert logs[name].catch_up() == [ids[name]]
            assert logs[name].unfinished() == []
            assert logs[name].catch_up() == []
    finally:
        other.close()


def test_a_folder_that_became_a_link_waits_and_holds_up_no_other(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    logs = PromptLogs(store, Settings.load("logs", {}, environment={}), tmp_path)
    ids = []
    for name in ("a", "b"):
        logs.enter(str(tmp_path / name), name, OWNER, "relax", anywhere=True)
        ids.append(store.submit(new_task(clock, external_id=name, retry=NO_RETRY)).task.task_id)
        finish(store, ids[-1], DONE)
    (tmp_path / "away").mkdir()
    (tmp_path / "a").rename(tmp_path / "kept")
    (tmp_path / "a").symlink_to(tmp_path / "away")
    assert logs.catch_up() == ids[1:]
    (tmp_path / "a").unlink()
    (tmp_path / "kept").rename(tmp_path / "a")
    assert logs.catch_up() == ids[:1]
    assert list((tmp_path / "away").iterdir()) == []
