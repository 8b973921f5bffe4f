"""The API's event streams: nothing is missed and nothing told twice, whoever comes again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import httpx2
import pytest

from backburner.mcp.transport.auth import hash_token
from tests.deployment import Deployment
from tests.integration.web.conftest import PROGRAM, Api, Event, Served

By = Callable[[str | None], Api]


@contextlib.contextmanager
def opened(
    api: Api, path: str = "/events", last: str | None = None, **query: object
) -> Iterator[Iterator[Event]]:
    """A stream from which something has come: what happens from now on is told."""
    with contextlib.closing(api.stream(path, last, **query)) as events:
        assert next(events).name == "open"
        yield events


def key(event: Event) -> tuple[str, int]:
    return event.data["task_id"], event.data["seq"]


def until_end_of(task_id: str, events: Iterator[Event]) -> list[Event]:
    found = []
    for event in events:
        found.append(event)
        if event.data["task_id"] == task_id and event.data["to_state"] == "succeeded":
            break
    return found


def test_what_happens_is_told_in_order(local: Api) -> None:
    with opened(local) as events:
        task_id = local.submit("count")
        told = [one for one in until_end_of(task_id, events) if one.data["task_id"] == task_id]
    assert [one.data["signal"] for one in told] == ["submit", "claim", "start", "succeed"]
    assert told[-1].data["tool_name"] == "count"
    assert all(one.id for one in told)


def test_who_comes_again_gets_what_he_missed_and_nothing_twice(local: Api) -> None:
    come_again(local)


@pytest.mark.slow
def test_who_comes_again_misses_nothing_where_writers_commit_side_by_side(
    tmp_path: Path, postgres_database: str
) -> None:
    made = Deployment(tmp_path, (PROGRAM,), {"store": postgres_database})
    with made, made.http() as server, contextlib.closing(Api(server.address)) as api:
        come_again(api)


def come_again(local: Api) -> None:
    with opened(local) as events:
        first = local.submit("count")
        before = until_end_of(first, events)
    # He is away, and things happen; then he is there again, and things go on.
    away = [local.finished("count") for _ in range(3)]
    with opened(local, last=before[-2].id) as events:
        after = [next(events)]
        last = local.submit("count")
        after += until_end_of(last, events)
    told = [*before[:-1], *after]
    assert len({key(one) for one in told}) == len(told)
    for task_id in (first, *away, last):
        history = local.get(f"/tasks/{task_id}")["events"]
        assert [one["seq"] for one in history] == [
            one.data["seq"] for one in told if one.data["task_id"] == task_id
        ]
    with opened(local, after=before[-2].id) as events:  # the same by the query
        assert [key(one) for one in islice(events, 3)] == [key(one) for one in after[:3]]


def test_everybody_hears_of_his_own_tasks_alone(by: By) -> None:
    alice, bob, wall = by("alice"), by("bob"), by("wall")
    with opened(alice) as to_alice, opened(bob) as to_bob, opened(wall) as to_wall:
        hers, his = alice.finished("count"), bob.finished("count")
        assert {one.data["task_id"] for one in until_end_of(hers, to_alice)} == {hers}
        assert {one.data["task_id"] for one in until_end_of(his, to_bob)} == {his}
        heard = {one.data["task_id"] for one in until_end_of(his, to_wall)}
        assert {hers, his} <= heard
    first = "0-0"
    with opened(bob, last=first) as events:
        assert all(one.data["owner"] == bob.get("/me")["owner"] for one in until_end_of(his, events))


@pytest.mark.parametrize("last", ["x", "1", "-1-1", "1-2-3", "9" * 30, "1-²"])
def test_an_id_that_is_none_is_refused(local: Api, last: str) -> None:
    answer = local.http.get("/events", headers={b"Last-Event-ID": last.encode()})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_cursor")


def test_a_log_is_followed_to_its_end_and_gone_on_with(local: Api) -> None:
    task_id = local.submit("count", n=6)
    events = list(local.stream(f"/tasks/{task_id}/logs/stream"))
    lines = [one for one in events if one.name == "line"]
    assert [one.data["message"] for one in lines] == [f"step {n}" for n in range(1, 7)]
    assert events[-1] == Event("end", {"state": "succeeded"})
    assert [one.data["state"] for one in events if one.name == "task"][-1] == "succeeded"
    rest = list(local.stream(f"/tasks/{task_id}/logs/stream", last=lines[3].id))
    assert [one.data["message"] for one in rest if one.name == "line"] == ["step 5", "step 6"]


def test_a_log_that_is_followed_ends_when_its_task_is_deleted(local: Api) -> None:
    task_id = local.submit("wait")
    with opened(local, f"/tasks/{task_id}/logs/stream") as events:
        assert any(one.name == "line" for one in events)
        local.post(f"/tasks/{task_id}/cancel")
        assert [one.name for one in events][-1] == "end"


def test_many_streams_share_one_reader(local: Api) -> None:
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(opened(Api(local.address))) for _ in range(30)]
        task_id = local.finished("count")
        told = [[key(one) for one in until_end_of(task_id, events)] for events in streams]
        assert all(one == told[0] for one in told)


@pytest.mark.slow
def test_an_open_stream_does_not_keep_the_server_from_ending(tmp_path: Path) -> None:
    made = Deployment(tmp_path, (PROGRAM,))
    with made, made.http() as server, opened(Api(server.address)) as events:
        server.stop()
        with contextlib.suppress(httpx2.RemoteProtocolError):  # it is cut off
            assert list(events) == []


def test_open_streams_end_when_their_token_is_revoked(guarded_server: Served) -> None:
    tokens, bearer = guarded_server.deployment.folder / "tokens", "Bearer token-of-leaver"
    before = tokens.read_text()
    replace(tokens, f"{before}leaver {hash_token('token-of-leaver')} backburner:read owner=alice\n")
    paths = ("/api/v1/events", "/?live", "/dashboard/tasks?live")
    with httpx2.Client(
        base_url=guarded_server.address, headers={"Authorization": bearer}, timeout=60
    ) as http:
        try:
            with contextlib.ExitStack() as stack:
                streams = [stack.enter_context(http.stream("GET", path)) for path in paths]
                assert {stream.status_code for stream in streams} == {200}
                replace(tokens, before)
                for stream in streams:
                    for _ in stream.iter_raw():
                        pass  # until the server ends it
        finally:
            replace(tokens, before)


def replace(file: Path, text: str) -> None:
    new = file.with_suffix(".new")
    new.write_text(text)
    new.rename(file)
