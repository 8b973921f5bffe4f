"""The API: who may see and change what. Another's task is the same 404 as one that is not there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest

from tests.integration.web.conftest import UNKNOWN, Api
from tests.services import wait_until

By = Callable[[str | None], Api]
OF_A_TASK: list[tuple[str, str, Any]] = [
    ("GET", "", None),
    ("DELETE", "", None),
    ("GET", "/result", None),
    ("GET", "/logs", None),
    ("GET", "/logs/stream", None),
    ("GET", "/artifacts", None),
    ("POST", "/cancel", {}),
    ("POST", "/retry", {}),
    ("POST", "/retry", {"inputs": {}}),
    ("POST", "/answers", {"answers": {"k": {"action": "decline"}}}),
]


@pytest.fixture
def task_id(by: By) -> str:
    return by("alice").finished("count", n=1)


def said(answer: httpx2.Response, task_id: str) -> tuple[int, str]:
    return answer.status_code, answer.text.replace(task_id, "…")


@pytest.mark.parametrize(("method", "path", "body"), OF_A_TASK)
def test_another_s_task_looks_like_no_task(by: By, task_id: str, method: str, path: str, body: Any) -> None:
    json = {} if body is None else {"json": body}
    bob = by("bob").http
    theirs = said(bob.request(method, f"/tasks/{task_id}{path}", **json), task_id)
    nobodys = said(bob.request(method, f"/tasks/{UNKNOWN}{path}", **json), UNKNOWN)
    assert theirs == nobodys
    assert theirs[0] == 404
    assert by("alice").get(f"/tasks/{task_id}")["state"] == "succeeded"


def test_everybody_lists_and_counts_his_own(by: By, task_id: str) -> None:
    carol, alice, ops = by("carol"), by("alice"), by("ops")
    theirs = carol.finished("fail")
    assert task_id not in [one["task_id"] for one in carol.get("/tasks", limit=500)["tasks"]]
    assert carol.get("/tasks", id=task_id)["tasks"] == []
    assert carol.get("/overview")["states"]["succeeded"] == 0
    assert carol.get("/statistics")["total"]["ended"] == {"failed": len(carol.get("/tasks")["tasks"])}
    for asked in ({"owner": "alice"}, {"owner": "carol"}):
        assert carol.get("/tasks", 403, **asked)["code"] == "not_permitted"
        assert carol.get("/statistics", 403, **asked)["code"] == "not_permitted"
    deleted = carol.post("/tasks/actions", {"action": "delete", "filter": {"state": ["succeeded"]}})
    assert deleted["matched"] == 0
    refused = carol.post("/tasks/actions", {"action": "delete", "filter": {"owner": "alice"}}, 403)
    assert refused["code"] == "not_permitted"
    everyones = [one["task_id"] for one in ops.get("/tasks", limit=500)["tasks"]]
    assert {task_id, theirs} <= set(everyones)
    assert theirs not in [one["task_id"] for one in ops.get("/tasks", owner="alice", limit=500)["tasks"]]
    assert ops.get(f"/tasks/{theirs}")["owner"] == alice.get("/me")["owner"].replace("alice", "carol")


def test_a_worker_s_task_is_named_to_who_may_see_it(by: By) -> None:
    alice = by("alice")
    running = alice.submit("wait")
    alice.until(running, lambda task: task["state"] == "running")

    def workers_at(api: Api) -> list[str | None]:
        return [one["current_task_id"] for one in api.get("/workers")["workers"]]

    ops = by("ops")
    assert wait_until(lambda: running in workers_at(ops))  # with the next heartbeat
    assert running in workers_at(alice)
    assert running not in workers_at(by("bob"))
    assert ops.post(f"/tasks/{running}/cancel")["state"] in ("cancel_requested", "cancelled")
    alice.done(running)


@pytest.mark.parametrize("token", ["alices-screen", "wall", "strange"])
def test_who_may_only_look_changes_nothing(by: By, task_id: str, token: str) -> None:
    looker = by(token)
    assert looker.get(f"/tasks/{task_id}")["task_id"] == task_id
    refused = [
        looker.post("/tasks", {"tool": "count"}, 403),
        looker.post("/tasks/actions", {"action": "delete", "filter": {}, "dry_run": True}, 403),
        looker.post("/queues/cpu_small/pause", status=403),
        *(
            looker.checked(looker.http.request(method, f"/tasks/{task_id}{path}", json=body or {}), 403)
            for method, path, body in OF_A_TASK
            if method != "GET"
        ),
    ]
    assert {one["code"] for one in refused} == {"not_permitted"}
    called = httpx2.post(f"{looker.address}/mcp", json={}, headers=dict(looker.http.headers))
    assert called.status_code == 403


def test_only_who_sees_all_owners_pauses_queues(by: By) -> None:
    assert by("alice").post("/queues/cpu_small/pause", status=403)["code"] == "not_permitted"
    ops = by("ops")
    ops.post("/queues/cpu_small/pause")
    ops.post("/queues/cpu_small/resume")
    assert by("wall").get("/me")["role"] == "read-all"


def test_nobody_comes_in_without_a_token(by: By, task_id: str) -> None:
    for api in (by(None), by("nobody")):
        for path in ("/tasks", f"/tasks/{task_id}", "/events", "/openapi.json", "/me"):
            answer = api.http.get(path)
            assert (answer.status_code, answer.json()["code"]) == (401, "token_required")
            assert answer.headers["www-authenticate"] == "Bearer"
        assert api.http.post("/tasks", json={"tool": "count"}).status_code == 401


def forms() -> Iterator[dict[str, Any]]:
    """What a page of another site can have a browser send here, without asking first."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        yield {"headers": {"Content-Type": kind}, "content": b'{"tool": "count"}'}
    yield {"content": b'{"tool": "count"}'}
    for site in ("cross-site", "same-site"):
        yield {"headers": {"Sec-Fetch-Site": site}, "json": {"tool": "count"}}
    for origin in ("http://evil.example", "null"):
        yield {"headers": {"Origin": origin}, "json": {"tool": "count"}}


@pytest.mark.parametrize("sent", [*forms()])
def test_a_page_of_another_site_changes_nothing(local: Api, sent: dict[str, Any]) -> None:
    def newest() -> list[str]:
        return [one["task_id"] for one in local.get("/tasks", limit=1)["tasks"]]

    before = newest()
    assert local.http.post("/tasks", **sent).status_code in (403, 415)
    assert newest() == before


def test_a_page_of_another_site_deletes_nothing_and_reads_nothing(local: Api) -> None:
    task_id = local.finished("count")
    crossed = {"Sec-Fetch-Site": "cross-site"}
    assert local.http.delete(f"/tasks/{task_id}", headers=crossed).json()["code"] == "cross_site"
    asked = local.http.options("/tasks", headers={"Access-Control-Request-Method": "POST"})
    assert not [name for name in asked.headers if name.startswith("access-control")]
    answer = local.http.get("/tasks")
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert local.http.get("/tasks", headers={"Host": "evil.example"}).status_code == 421
