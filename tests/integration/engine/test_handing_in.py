"""Tasks that are handed to the supervisor, which writes them: once, whatever becomes of either side."""

import asyncio
import json
import os
import resource
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from backburner.core.lifecycle import State
from backburner.engines.local import LocalEngine
from backburner.errors import IdempotencyConflict, QueueFull
from backburner.version import VERSION
from tests.contracts.engine.base import eventually
from tests.contracts.engine_tools import contract_app
from tests.contracts.processes import Start, running
from tests.integration.engine.conftest import StartLocal
from tests.integration.engine.local import Local, kill
from tests.integration.engine.test_local_fencing import stopped_between_writes
from tests.services import ended

ONCE = ["submit", "claim", "start", "succeed"]


def at_the_counter(local: Local) -> socket.socket:
    """A connection to where tasks are handed in."""
    folder = os.open(local.app.data_dir, os.O_RDONLY)
    try:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(20)
        connection.connect(f"/proc/self/fd/{folder}/submit.sock")
        return connection
    finally:
        os.close(folder)


def submit_without_writing(start: Start, store: str) -> str:
    """Submit in a process that may write to no file."""
    app = contract_app(store=store)
    app.service.submit("add", {"a": 1})  # what this process stands on is kept in a file once
    start()
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    return app.service.submit("add", {"a": 40}).task_id


def test_who_submits_needs_to_write_to_no_file(local: Local) -> None:
    with running(submit_without_writing, (local.store.url,)) as (submitter,):
        task_id = submitter.value()
    assert local.end(task_id).result == {"sum": 42}
    assert local.trail(task_id) == ONCE


def test_where_there_is_no_supervisor_a_task_is_kept_all_the_same(local: Local) -> None:
    local.run("add", a=1)
    local.app.engine.stop()
    local.end_supervisor()
    task_id = local.submit("add", a=1)
    assert local.store.get(task_id).state is State.QUEUED


@pytest.mark.whole
def test_tasks_that_are_submitted_while_supervisors_die_are_kept_once(local: Local) -> None:
    with ThreadPoolExecutor(8) as callers:
        submitted = [callers.submit(local.submit, "add", a=number) for number in range(200)]
        for _ in range(2):
            eventually(lambda: sum(one.done() for one in submitted) % 10 == 5 or submitted[-1].done())
            kill(local.supervisor())
        ids = [one.result() for one in submitted]
    assert len(set(ids)) == len(ids) == sum(local.store.count_states().values())
    assert [local.end(task_id).result for task_id in ids] == [{"sum": number + 2} for number in range(200)]


@pytest.mark.whole
@pytest.mark.slow
def test_a_supervisor_that_is_stopped_keeps_no_task_from_being_kept_and_run_once(local: Local) -> None:
    local.run("add", a=1)
    with stopped_between_writes(local.supervisor(), local):
        task_id = local.submit("add", a=1)
        assert local.store.get(task_id).state is State.QUEUED
    local.end(task_id)
    assert local.trail(task_id) == ONCE


def test_the_same_key_gives_the_first_task_and_another_s_inputs_are_refused(local: Local) -> None:
    key = {"idempotency_key": "k"}
    first = local.submit("add", key, a=1)
    assert local.submit("add", key, a=1) == first
    with pytest.raises(IdempotencyConflict):
        local.submit("add", key, a=2)
    assert local.end(first).result == {"sum": 3}


def test_a_full_queue_refuses(start_local: StartLocal, tmp_path: Path) -> None:
    local = start_local(queues={"cpu_standard": {"workers": 1, "max_length": 1}})
    begun = local.submit("run_until", folder=str(tmp_path))
    local.until_state(begun, State.RUNNING)
    local.submit("add", a=1)
    with pytest.raises(QueueFull):
        local.submit("add", a=2)
    (tmp_path / "go").touch()


def test_a_task_may_be_as_large_as_the_settings_allow(local: Local) -> None:
    words = "é" * 400_000
    assert len(local.run("say", words=words).inputs["words"]) == len(words)  # type: ignore[index]


def test_a_process_that_was_forked_has_its_own_answers(local: Local) -> None:
    local.run("add", a=1)
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writer, local.submit("add", a=1).encode())
        os._exit(0)
    own = local.submit("add", a=2)
    os.waitpid(child, 0)
    its = os.read(reader, 100).decode()
    assert local.end(own).result == {"sum": 4}
    assert local.end(its).result == {"sum": 3}


@pytest.mark.parametrize(
    "hello",
    [
        b'["submit",{}]\n',
        b'["hello",{"key":"guess","store":"x","version":"0"}]\n["submit",{"task":{},"queue_cap":1}]\n',
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" * 100_000 + b"\n",
    ],
)
def test_who_does_not_know_the_key_is_not_heard(local: Local, hello: bytes) -> None:
    with at_the_counter(local) as stranger:
        stranger.sendall(hello)
        assert stranger.recv(1) == b""
    assert local.store.count_states() == {}
    assert local.run("add", a=1).result == {"sum": 3}


def test_what_was_handed_in_and_is_no_task_harms_nobody(local: Local) -> None:
    key = (local.app.data_dir / "submit.key").read_text()
    said = {"key": key, "store": local.store.url, "version": VERSION}
    with at_the_counter(local) as stranger:
        stranger.sendall(json.dumps(["hello", said]).encode() + b'\n["submit",{"task":{"owner":1}}]\n')
        assert stranger.recv(1) == b""
    assert local.run("add", a=1).result == {"sum": 3}


def test_only_its_owner_can_reach_the_counter(local: Local) -> None:
    folder = local.app.data_dir
    assert {(folder / name).stat().st_mode & 0o777 for name in ("submit.key", "submit.sock")} == {0o600}


def test_nothing_is_left_of_the_counter_when_the_supervisor_ends(local: Local) -> None:
    local.run("add", a=1)
    local.app.engine.stop()
    local.end_supervisor()
    assert not (local.app.data_dir / "submit.sock").exists()


def test_after_a_restart_tasks_are_handed_to_the_new_supervisor(local: Local) -> None:
    local.run("add", a=1)
    old = local.supervisor()
    assert isinstance(local.app.engine, LocalEngine)
    new = local.app.engine.restart()
    assert new is not None
    assert ended(old)
    with running(submit_without_writing, (local.store.url,)) as (submitter,):
        task_id = submitter.value()
    assert local.end(task_id).result == {"sum": 42}


@pytest.mark.whole
def test_an_event_loop_hands_in_as_many_as_it_likes_at_once(local: Local) -> None:
    async def submit_together() -> list[str]:
        aio = local.service.aio
        await aio.submit("add", {"a": 0})
        statuses = await asyncio.gather(*(aio.submit("add", {"a": number}) for number in range(100)))
        return [status.task_id for status in statuses]

    for _ in range(2):  # the second event loop is another one
        ids = asyncio.run(submit_together())
        assert [local.end(task_id).result for task_id in ids] == [{"sum": n + 2} for n in range(100)]


@pytest.mark.whole
def test_tasks_that_an_event_loop_submits_while_supervisors_die_are_kept_once(local: Local) -> None:
    async def submit_and_kill() -> list[str]:
        aio = local.service.aio
        await aio.submit("add", {"a": 0})
        submitted = [asyncio.ensure_future(aio.submit("add", {"a": number})) for number in range(200)]
        await asyncio.wait(submitted, return_when=asyncio.FIRST_COMPLETED)
        kill(local.supervisor())
        return [(await one).task_id for one in submitted]

    ids = asyncio.run(submit_and_kill())
    assert [local.end(task_id).result for task_id in ids] == [{"sum": n + 2} for n in range(200)]
    assert sum(local.store.count_states().values()) == 201


def test_an_event_loop_is_told_of_conflicts_and_large_tasks_are_taken(local: Local) -> None:
    async def submit(words: str) -> str:
        await local.service.aio.submit("add", {"a": 1})
        status = await local.service.aio.submit("say", {"words": words}, idempotency_key="k")
        return status.task_id

    first = asyncio.run(submit("é" * 400_000))
    assert asyncio.run(submit("é" * 400_000)) == first
    with pytest.raises(IdempotencyConflict):
        asyncio.run(submit("no"))
    assert local.end(first).state is State.SUCCEEDED
