"""`backburner migrate --to`: a store that was used is copied into another, and worked on there."""

import base64
import contextlib
import os
import signal
import subprocess
import uuid
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from backburner.core.lifecycle import State
from backburner.core.monitoring import ClientTimeout
from backburner.core.task import Resources
from backburner.mcp.results import ArtifactLinks
from backburner.store import open_store
from backburner.store.protocol import OpenCall
from backburner.store.sql.statements import migrations
from backburner.tools.spec import tool_from_function
from tests.contracts.engine.base import eventually
from tests.contracts.engine_tools import contract_app
from tests.integration.engine.local import Client, kill, running
from tests.integration.moving.stores import begin, contents, execute, files, make_many, move, refusal, rows
from tests.integration.stores.small_disks import small_disk_in
from tests.services import free_port

QUICK = {"keeper_interval_s": 0.2, "heartbeat_s": 0.2}
WEBHOOK = {
    "url": f"http://127.0.0.1:{free_port()}/",
    "secret": f"whsec_{base64.b64encode(bytes(32)).decode()}",
}


def hand_out(url: str, task_id: str, again_at: str) -> None:
    """As if it was given to a queue outside; with a time, it is not there any more."""
    execute(
        Path(url.removeprefix("sqlite:///")),
        "INSERT INTO hand_outs (task_id, engine, queue, attempt, job, handed_at, again_at)"
        f" VALUES ('{task_id}', 'slurm', 'cpu_standard', 1, '17', 1, {again_at})",
    )


def use(url: str, folder: Path) -> dict[str, str]:
    """Use a store: tasks in every state that there can be without a supervisor, by what they are."""
    limits = {"tools": {"say": {"max_starts_per_minute": 1}}}
    app = contract_app(store=url, supervisor=QUICK, limits=limits, webhook=WEBHOOK)

    def limited_here() -> None: ...

    app.add_tool(tool_from_function(limited_here, max_running=2))
    with running(app) as local:
        tasks = {
            "kept files": local.run("keep_files").task_id,
            "packed": local.run("flood", lines=2000).task_id,
            "plain": local.run("say", words="über").task_id,
            "failed": local.run("fail", message="no").task_id,
            "timed out": local.run("stay", {"resources": Resources(max_runtime_s=0.5)}, seconds=60).task_id,
            "unknown": local.run("limited_here").task_id,
            "expired": local.run("add", {"ttl_s": 0.5}, a=1).task_id,
            "held": local.submit("say", words="held"),
            "cancelled": local.submit("sleep", seconds=60),
        }
        local.until_state(tasks["cancelled"], State.RUNNING)
        local.service.cancel(tasks["cancelled"])
        local.end(tasks["cancelled"])
        tasks["asking"] = local.submit("ask_name")
        tasks["checkpoint"] = local.submit("ledgered", kind="checkpoint", ledger=str(folder), seconds=600)
        eventually(lambda: rows(url, "checkpoints"))
        local.until_state(tasks["asking"], State.INPUT_REQUIRED)
        eventually(lambda: local.store.get(tasks["expired"]).state is State.EXPIRED)
        eventually(lambda: local.store.get(tasks["held"]).waits_for)
    with contextlib.closing(Client(contract_app(store=url))) as client:
        tasks["waiting"] = client.submit("add", {"tags": ["a", "b"], "idempotency_key": "once"}, a=40)
        open_call = OpenCall(tasks["waiting"], "local", "add", "hash", 60_000)
        client.store.write_calls([open_call])
        given = client.submit("add", a=2)
        hand_out(url, given, again_at="1")
        client.store.pause_queue("gpu_small", "ann")
        client.store.spend("link", for_s=3600)
        client.store.keep_time_out(ClientTimeout("host", "1", "stdio", 1, 60_000, 60_000))
    return tasks


@pytest.mark.slow
def test_a_store_that_was_used_is_copied_whole_and_worked_on(tmp_path: Path, postgres_database: str) -> None:
    path = tmp_path / "tasks.db"
    url, folder = f"sqlite:///{path}", tmp_path / "tasks.db.d"
    tasks = use(url, tmp_path)
    with contextlib.closing(Client(contract_app(store=url))) as client:
        pages = client.service.list(limit=3)
        log = client.service.logs(tasks["packed"], limit=100)
        (artifact, *_) = client.store.artifacts(tasks["kept files"])
        link = ArtifactLinks(client.store, "https://lab.example", 3600).to(artifact, None)
        rest = client.service.list(limit=100, cursor=pages.next_cursor)
    assert link is not None
    (folder / "tokens").write_text("# none\n")
    before, files_before = contents(path, url), files(folder / "tasks")
    empty = {table for table, found in before.items() if not found}
    assert not empty, "the store has something in every table"
    assert {state for (state,) in rows(url, "tasks", "DISTINCT state")} == {
        *("queued", "succeeded", "failed", "cancelled", "timed_out", "expired")
    }

    said = move(url, postgres_database, "--data-dir", str(tmp_path / "new"))
    assert "counts and checksums agree" in said
    assert f"BACKBURNER_DATA_DIR={tmp_path / 'new'}" in said
    assert contents(path, postgres_database) == before
    assert contents(path, url) == before
    assert files(tmp_path / "new" / "tasks") == files(folder / "tasks") == files_before
    assert {entry.name for entry in (tmp_path / "new").iterdir()} == {"launches", "tasks", "tokens"}

    app = contract_app(store=postgres_database, data_dir=str(tmp_path / "new"), supervisor=QUICK)
    with running(app) as local:
        local.service.cancel(tasks["checkpoint"])
        assert local.end(tasks["checkpoint"]).state is State.CANCELLED
        assert local.end(tasks["held"]).state is State.SUCCEEDED
        assert local.end(tasks["waiting"]).result == {"sum": 42}
        again = local.service.submit("add", {"a": 40}, idempotency_key="once", tags=["a", "b"])
        assert again.task_id == tasks["waiting"]
        (question,) = local.until_state(tasks["asking"], State.INPUT_REQUIRED).questions
        answer = {"action": "accept", "content": {"name": "Ann"}}
        local.service.answer_input(tasks["asking"], {question.key: answer})
        assert local.end(tasks["asking"]).result["content"] == {"name": "Ann"}
        local.service.retry(tasks["failed"])
        local.until(tasks["failed"], lambda task: task.attempt == 2 and task.finished)
        assert local.lines(tasks["packed"]) == [f"line {number}" for number in range(2000)]
        page = local.service.logs(tasks["packed"], limit=1, cursor=log.next_cursor)
        assert page.lines[0].message == "line 100"
        moved_on = local.service.list(limit=100, cursor=pages.next_cursor)
        assert [task.task_id for task in moved_on.tasks] == [task.task_id for task in rest.tasks]
        token = parse_qs(urlsplit(link.url).query)["token"][0]
        ArtifactLinks(local.store, "https://lab.example", 3600).check(artifact.artifact_id, token)
        assert (app.data_dir / "tasks" / artifact.path).stat().st_size == artifact.size_bytes
        newest = local.store.get(local.run("add", a=1).task_id).seq
        assert newest > max(row[0] for row in rows(url, "tasks", "seq"))


def test_a_store_is_copied_into_another_file_and_from_there_as_it_was(tmp_path: Path) -> None:
    make_many(tmp_path / "tasks.db", 200)
    folder = tmp_path / "tasks.db.d" / "tasks" / "tsk_1"
    folder.mkdir(parents=True)
    (folder / "link").symlink_to("nowhere")
    (folder / "closed").mkdir()
    (folder / "closed" / "data").write_bytes(b"1")
    (folder / "closed").chmod(0o500)
    move(f"sqlite:///{tmp_path}/tasks.db", f"sqlite:///{tmp_path}/second.db")
    move(f"sqlite:///{tmp_path}/second.db", f"sqlite:///{tmp_path}/third.db")
    path = tmp_path / "tasks.db"
    assert contents(path, f"sqlite:///{tmp_path}/third.db") == contents(path, f"sqlite:///{path}")
    copy = tmp_path / "third.db.d" / "tasks" / "tsk_1"
    assert (copy / "link").readlink() == Path("nowhere")
    assert (copy / "closed").stat().st_mode & 0o777 == 0o500
    with contextlib.closing(open_store(f"sqlite:///{tmp_path}/third.db")) as store:
        assert sum(depth.queued for depth in store.queue_depths()) == 20


# -- what is refused


@pytest.mark.slow
def test_a_store_that_somebody_works_on_is_refused_with_what_to_do(tmp_path: Path) -> None:
    url, to = f"sqlite:///{tmp_path}/tasks.db", f"sqlite:///{tmp_path}/new.db"
    with running(contract_app(store=url, supervisor=QUICK)) as local:
        task_id = local.submit("stay", seconds=60)
        eventually(lambda: len(local.lines(task_id)) == 3)  # it has started all its children
        said = move(url, to, code=4)
        assert f"a supervisor is running (pid {local.supervisor().pid})" in said
        assert "`backburner supervisor stop`" in said
        local.app.engine.stop()
        kill(*local.family())
        eventually(lambda: local.lock.holder() is None)
        assert f"pid {os.getpid()} has it open" in move(url, to, code=4)
        local.app.close()
        said = move(url, to, code=4)
        assert "1 of its tasks are leased by workers that are gone" in said
        assert "`backburner supervisor restart`, then `backburner supervisor stop --now`" in said
        assert not (tmp_path / "new.db").exists()


def test_what_is_no_place_to_copy_to_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path, newest = tmp_path / "tasks.db", migrations("sqlite")[-1][0]
    source, full, new = (f"sqlite:///{tmp_path}/{name}.db" for name in ("tasks", "full", "new"))
    make_many(path, 10)
    make_many(tmp_path / "full.db", 3)
    assert "has 3 tasks already" in str(refusal(source, full))
    hand_out(full, f"tsk_{1:036d}", again_at="NULL")
    execute(tmp_path / "full.db", "UPDATE tasks SET state = 'queued', attempt = 0")
    assert "1 of its tasks wait in slurm" in str(refusal(full, new))
    assert "the same file" in str(refusal(source, source))
    assert "names no file" in str(refusal(source, "sqlite://"))
    assert "neither sqlite:///path" in str(refusal(source, "mysql://db/tasks"))
    assert "cannot be reached" in str(refusal(source, f"postgresql://nobody@127.0.0.1:{free_port()}/none"))
    assert "there is no such file" in str(refusal(f"sqlite:///{tmp_path}/gone.db", source))
    (tmp_path / "new.db.d").mkdir()
    (tmp_path / "new.db.d" / "tokens").write_text("of another")
    (tmp_path / "tasks.db.d" / "tokens").write_text("of this")
    assert "exists and differs from" in str(refusal(source, new))
    assert rows(new, "tasks") == []
    execute(tmp_path / "full.db", f"PRAGMA user_version = {newest + 1}")
    assert "Upgrade Backburner" in str(refusal(source, full))
    assert "Upgrade Backburner" in str(refusal(full, source))


def test_a_database_whose_user_may_not_write_is_refused(tmp_path: Path, postgres_database: str) -> None:
    make_many(tmp_path / "tasks.db", 10)
    reader = f"reader_{uuid.uuid4().hex}"
    open_store(postgres_database).close()
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {reader} LOGIN".encode())
        connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {reader}".encode())
    try:
        parts = urlsplit(postgres_database)
        to = parts._replace(netloc=f"{reader}@{parts.hostname}:{parts.port}").geturl()
        assert "the rights of the database's user" in str(refusal(f"sqlite:///{tmp_path}/tasks.db", to))
    finally:
        with psycopg.connect(postgres_database, autocommit=True) as connection:
            connection.execute(f"DROP OWNED BY {reader}".encode())
            connection.execute(f"DROP ROLE {reader}".encode())


# -- what goes wrong on the way


@pytest.mark.parametrize("what", ["rows", "files"])
def test_where_the_disk_is_full_nothing_is_kept_and_it_is_said(tmp_path: Path, what: str) -> None:
    make_many(tmp_path / "tasks.db", 5000 if what == "rows" else 10)
    folder = tmp_path / "tasks.db.d" / "tasks" / "tsk_1"
    folder.mkdir(parents=True)
    for number in range(4):
        (folder / f"file-{number}").write_bytes(bytes(10 if what == "rows" else 1 << 20))
    with small_disk_in(tmp_path, megabytes=3) as disk:
        to = f"sqlite:///{disk}/new.db"
        said = move(f"sqlite:///{tmp_path}/tasks.db", to, code=4)
        assert "Free some disk space" in said
        assert rows(to, "tasks") == []
        assert not (disk / "new.db.d" / "tasks").exists()


def until_it_waits(process: subprocess.Popen[str]) -> None:
    """Until the rows of the first tables are there."""
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("copying task_events"):
            return
    raise AssertionError("it ended before that")


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_copy_that_is_interrupted_leaves_no_task_and_can_be_begun_again(
    tmp_path: Path, postgres_database: str, number: signal.Signals
) -> None:
    path = tmp_path / "tasks.db"
    make_many(path, 100)
    (tmp_path / "tasks.db.d" / "tasks" / "tsk_1").mkdir(parents=True)
    (tmp_path / "tasks.db.d" / "tasks" / "tsk_1" / "data").write_bytes(b"1" * 1000)
    open_store(postgres_database).close()
    source, new = f"sqlite:///{path}", tmp_path / "new"
    with psycopg.connect(postgres_database) as connection:
        connection.execute("LOCK TABLE task_logs IN ACCESS EXCLUSIVE MODE")
        process = begin(source, postgres_database, "--data-dir", str(new))
        until_it_waits(process)
        process.send_signal(number)
        _, said = process.communicate(timeout=30)
    if number is signal.SIGINT:
        assert process.returncode == 130
        assert "Interrupted: nothing was copied" in said
        assert not new.exists()
    assert rows(postgres_database, "tasks") == []
    move(source, postgres_database, "--data-dir", str(new))
    assert contents(path, postgres_database) == contents(path, source)
    assert (new / "tasks" / "tsk_1" / "data").read_bytes() == b"1" * 1000
