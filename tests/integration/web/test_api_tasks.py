"""The API: tasks are submitted, read, steered and deleted over real HTTP, and run by a real supervisor."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2

from tests.integration.web.conftest import UNKNOWN, Api, Served


def test_a_task_is_submitted_and_seen_through(local: Api) -> None:
    made = local.post("/tasks", {"tool": "count", "inputs": {"n": 4}, "tags": ["a:b"], "priority": 7}, 201)
    assert made["created"]
    task = local.done(made["task_id"])
    assert task["state"] == "succeeded"
    assert task["inputs"] == {"n": 4}
    assert (task["tags"], task["priority"], task["progress"]["percent"]) == (["a:b"], 7, 100)
    assert [one["outcome"] for one in task["attempts"]] == ["succeeded"]
    assert [one["signal"] for one in task["events"]] == ["submit", "claim", "start", "succeed"]
    assert not {"target", "caller", "meta", "launch"} & task.keys()
    result = local.get(f"/tasks/{task['task_id']}/result")
    assert result["result"] == {"counted": 4, "key_chars": 0}
    assert [one["name"] for one in result["artifacts"]] == ["digits.txt"]


def test_the_same_idempotency_key_gives_the_first_task_back(local: Api) -> None:
    asked = {"tool": "count", "inputs": {"n": 1}, "idempotency_key": "once"}
    first = local.post("/tasks", asked, 201)
    again = local.post("/tasks", asked, 200)
    assert (again["task_id"], again["created"]) == (first["task_id"], False)
    refused = local.post("/tasks", {**asked, "inputs": {"n": 2}}, 409)
    assert refused["code"] == "idempotency_conflict"


def test_what_cannot_be_submitted_says_why(local: Api) -> None:
    for body, code in (
        ({"tool": "none"}, "unknown_tool"),
        ({"tool": "count", "inputs": {"n": "many"}}, "invalid_inputs"),
        ({"tool": "count", "queue": "none"}, "unknown_queue"),
        ({"tool": "count", "colour": "red"}, "invalid_request"),
        ({"tool": "count", "inputs": {"n": [[]]}}, "invalid_inputs"),
        ({}, "invalid_request"),
        ([], "invalid_request"),
    ):
        refused = local.post("/tasks", body, 400)
        assert refused["code"] == code
        assert refused["status"] == 400
        assert refused["detail"]
    for raw in (b"{", b"\xff", b'{"tool": "\\ud800"}', b"[" * 100_000, b'{"tool": NaN}'):
        answer = local.http.post("/tasks", content=raw, headers={"Content-Type": "application/json"})
        assert answer.status_code == 400
        assert answer.headers["content-type"] == "application/problem+json"
    huge = local.http.post("/tasks", json={"tool": "count", "inputs": {"key": "x" * 20_000_000}})
    assert (huge.status_code, huge.json()["code"]) == (413, "too_large")


def test_tasks_are_listed_by_filters_and_in_pages(local: Api) -> None:
    tags = ["listed"]
    ids = [
        local.post("/tasks", {"tool": "count", "inputs": {"n": n}, "tags": tags}, 201)["task_id"]
        for n in range(5)
    ]
    failed = local.post("/tasks", {"tool": "fail", "inputs": {"reason": "Blue smoke"}, "tags": tags}, 201)
    for task_id in (*ids, failed["task_id"]):
        local.done(task_id)
    found: list[str] = []
    cursor: dict[str, Any] = {}
    while True:
        page = local.get("/tasks", tag="listed", limit=4, **cursor)
        found += [task["task_id"] for task in page["tasks"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert found == [failed["task_id"], *reversed(ids)]

    def listed(**query: Any) -> list[str]:
        return [task["task_id"] for task in local.get("/tasks", tag="listed", **query)["tasks"]]

    assert listed(sort="oldest") == found[::-1]
    oldest = local.get("/tasks", tag="listed", sort="oldest", limit=4)
    rest = listed(sort="oldest", limit=4, cursor=oldest["next_cursor"])
    assert [task["task_id"] for task in oldest["tasks"]] + rest == found[::-1]
    turned = local.get("/tasks", 400, tag="listed", cursor=oldest["next_cursor"])
    for sort, whole in (("newest", found), ("oldest", found[::-1])):
        page = local.get("/tasks", tag="listed", sort=sort, limit=2)
        assert page["previous_cursor"] is None
        for _ in range(2):
            page = local.get("/tasks", tag="listed", sort=sort, limit=2, cursor=page["next_cursor"])
        assert (page["next_cursor"], page["tasks"][-1]["task_id"]) == (None, whole[-1])
        back = local.get("/tasks", tag="listed", sort=sort, limit=2, cursor=page["previous_cursor"])
        assert [task["task_id"] for task in back["tasks"]] == whole[2:4]
        first = local.get("/tasks", tag="listed", sort=sort, limit=2, cursor=back["previous_cursor"])
        assert [task["task_id"] for task in first["tasks"]] == whole[:2]
        assert first["previous_cursor"] is None
        again = local.get("/tasks", tag="listed", sort=sort, limit=2, cursor=first["next_cursor"])
        assert again["tasks"] == back["tasks"]
    assert turned["code"] == "invalid_cursor"
    assert listed(state="failed") == listed(text="blue SMOKE") == [failed["task_id"]]
    assert listed(state=["failed", "succeeded"]) == found
    assert listed(tool="count") == found[1:]
    assert listed(id=ids[2][4:25].lower()) == [ids[2]]
    assert listed(queue="cpu_standard") == found
    assert listed(queue="gpu_small") == []
    now = datetime.now(UTC)
    assert listed(since=(now - timedelta(hours=1)).isoformat(), until=now.isoformat()) == found
    assert listed(until=(now - timedelta(hours=1)).isoformat()) == []
    for query in ({"limit": 0}, {"state": "lost"}, {"cursor": "x"}, {"id": "!"}, {"since": "once"}, {"x": 1}):
        assert local.get("/tasks", 400, **query)["code"] in ("invalid_request", "invalid_cursor")


def test_a_running_task_is_cancelled(local: Api) -> None:
    task_id = local.submit("wait")
    local.until(task_id, lambda task: task["state"] == "running")
    assert local.get(f"/tasks/{task_id}/result", 409)["code"] == "not_finished"
    assert local.delete(f"/tasks/{task_id}", 409)["code"] == "not_allowed_now"
    local.post(f"/tasks/{task_id}/cancel", {"reason": "enough"})
    task = local.done(task_id)
    assert (task["state"], task["cancel_reason"]) == ("cancelled", "enough")
    assert local.post(f"/tasks/{task_id}/cancel")["state"] == "cancelled"


def test_a_task_is_retried_as_it_is_or_with_other_inputs(local: Api) -> None:
    task_id = local.finished("fail")
    again = local.post(f"/tasks/{task_id}/retry")
    assert (again["task_id"], again["error"]) == (task_id, None)
    assert len(local.done(task_id)["attempts"]) == 2
    done = local.finished("count", n=1, key="hush")
    assert local.post(f"/tasks/{done}/retry", status=409)["code"] == "not_allowed_now"
    inputs = local.get(f"/tasks/{done}")["inputs"]
    assert "hush" not in str(inputs)
    changed = local.post(f"/tasks/{done}/retry", {"inputs": {**inputs, "n": 2}}, 201)
    assert changed["task_id"] != done
    local.done(changed["task_id"])
    assert local.get(f"/tasks/{changed['task_id']}/result")["result"] == {"counted": 2, "key_chars": 4}
    refused = local.post(f"/tasks/{done}/retry", {"inputs": {"n": "x"}}, 400)
    assert refused["code"] == "invalid_inputs"


def test_a_finished_task_is_deleted(local: Api) -> None:
    task_id = local.finished("count")
    local.delete(f"/tasks/{task_id}")
    assert local.get(f"/tasks/{task_id}", 404)["code"] == "task_not_found"
    assert local.delete(f"/tasks/{task_id}", 404)["code"] == "task_not_found"


def test_a_question_is_answered(local: Api) -> None:
    task_id = local.submit("ask")
    asking = local.until(task_id, lambda task: task["state"] == "input_required")
    (question,) = asking["questions"]
    assert question["message"] == "Your name?"
    assert question["schema"]["required"] == ["name"]
    wrong = {"answers": {question["key"]: {"action": "accept", "content": {"name": 7}}}}
    assert local.post(f"/tasks/{task_id}/answers", wrong, 400)["code"] == "invalid_answer"
    right = {"answers": {question["key"]: {"action": "accept", "content": {"name": "Ada"}}}}
    local.post(f"/tasks/{task_id}/answers", right)
    assert local.done(task_id)["all_questions"][0]["action"] == "accept"
    assert local.get(f"/tasks/{task_id}/result")["result"] == "Hello, Ada!"


def test_all_that_a_filter_chooses_is_acted_on_after_a_dry_run(local: Api) -> None:
    asked = {"tool": "fail", "tags": ["bulk"]}
    ids = [local.post("/tasks", asked, 201)["task_id"] for _ in range(4)]
    for task_id in ids:
        local.done(task_id)
    chosen = {"filter": {"tag": ["bulk"]}}
    counted = local.post("/tasks/actions", {"action": "retry", **chosen, "dry_run": True})
    assert (counted["matched"], counted["done"], counted["more"]) == (4, 0, False)
    assert all(len(local.get(f"/tasks/{one}")["attempts"]) == 1 for one in ids)
    some = local.post("/tasks/actions", {"action": "retry", **chosen, "limit": 3})
    assert (some["done"], some["left_alone"], some["more"]) == (3, [], True)
    for task_id in ids:
        local.done(task_id)
    assert local.post("/tasks/actions", {"action": "cancel", **chosen})["matched"] == 0
    gone = local.post("/tasks/actions", {"action": "delete", **chosen})
    assert gone["done"] == 4
    assert local.get("/tasks", tag="bulk")["tasks"] == []


def test_a_log_is_read_in_parts_also_of_a_line(local: Api) -> None:
    task_id = local.finished("count", n=5)
    first = local.get(f"/tasks/{task_id}/logs", limit=2)
    assert [line["message"] for line in first["lines"]] == ["step 1", "step 2"]
    assert first["more"]
    rest = local.get(f"/tasks/{task_id}/logs", after=first["next_after"])
    assert [line["message"] for line in rest["lines"]] == ["step 3", "step 4", "step 5"]
    assert not rest["more"]

    long = local.finished("long_line", chars=2_500_000)
    read, after, offset, more = "", 0, 0, True
    messages = []
    while more:
        page = local.get(f"/tasks/{long}/logs", after=after, offset=offset)
        for line in page["lines"]:
            read += line["message"]
            if line["offset"] + len(line["message"]) == line["length"]:
                messages.append(read)
                read = ""
        assert sum(len(line["message"]) for line in page["lines"]) <= 1 << 20
        after, offset, more = page["next_after"], page["next_offset"], page["more"]
    assert "".join(messages) == "x" * 2_500_000 + "after"


def test_an_artifact_has_a_link_that_takes_ranges_and_cannot_be_altered(local: Api) -> None:
    task_id = local.finished("count")
    (artifact,) = local.get(f"/tasks/{task_id}/artifacts")["artifacts"]
    link = artifact["download_url"]
    assert link.startswith(f"{local.address}/artifacts/{artifact['artifact_id']}/")
    assert httpx2.get(link).content == b"0123456789" * 100
    part = httpx2.get(link, headers={"Range": "bytes=10-14"})
    assert (part.status_code, part.content) == (206, b"01234")
    altered = link[:-2] + ("AA" if link[-2:] != "AA" else "BB")
    assert httpx2.get(altered).status_code == 404


def test_a_download_never_follows_a_link_put_in_the_place_of_the_file(
    local: Api, open_server: Served
) -> None:
    task_id = local.finished("count")
    (artifact,) = local.get(f"/tasks/{task_id}/artifacts")["artifacts"]
    (file,) = open_server.deployment.folder.glob(f"**/{artifact['artifact_id']}/digits.txt")
    secret, copy = file.with_name("secret"), file.with_name("copy")
    secret.write_bytes(b"s" * artifact["size_bytes"])
    copy.write_bytes(file.read_bytes())
    over = threading.Event()

    def swap() -> None:
        """As a tool may that can write there: the file is itself and a link, in turns."""
        beside = file.with_name("beside")
        while not over.is_set():
            beside.symlink_to(secret)
            beside.replace(file)
            beside.hardlink_to(copy)
            beside.replace(file)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        with httpx2.Client() as http:
            seen = {http.get(artifact["download_url"]).content for _ in range(300)}
    finally:
        over.set()
        swapping.join()
    assert copy.read_bytes() in seen
    assert secret.read_bytes() not in seen


def test_no_task_of_a_paused_queue_begins_until_it_is_resumed(local: Api) -> None:
    paused = local.post("/queues/cpu_small/pause")["queues"]
    assert [one["queue"] for one in paused if one["paused_at"]] == ["cpu_small"]
    task_id = local.post("/tasks", {"tool": "count", "queue": "cpu_small"}, 201)["task_id"]
    other = local.finished("count")  # of another queue
    assert local.get(f"/tasks/{other}")["state"] == "succeeded"
    waiting = local.get(f"/tasks/{task_id}")
    assert (waiting["state"], waiting["waits_for"]) == ("queued", "queue cpu_small is paused")
    local.post("/queues/cpu_small/resume")
    assert local.done(task_id)["state"] == "succeeded"
    assert local.post("/queues/none/pause", status=400)["code"] == "unknown_queue"


def test_the_server_says_what_it_has(local: Api) -> None:
    local.finished("count", n=2)
    tools = {one["tool_name"]: one for one in local.get("/tools")["tools"]}
    assert tools["count"]["input_schema"]["properties"]["n"]["type"] == "integer"
    workers = local.get("/workers")["workers"]
    assert {one["queue"] for one in workers if one["alive"]} >= {"cpu_standard", "cpu_small"}
    assert local.get("/clients")["clients"] == []
    seen = local.get("/overview")
    assert seen["states"]["succeeded"] >= 1
    assert sum(one["ended"].get("succeeded", 0) for one in seen["statistics"]["stretches"]) >= 1
    total = local.get("/statistics", tool="count", every_s=600)["total"]
    assert total["run"]["half_within_s"] is not None
    assert sum(total["run"]["counts"]) == total["ended"]["succeeded"]
    assert local.get("/statistics", tool="none")["total"]["ended"] == {}
    too_fine = {"since": "2026-01-01", "until": "2026-12-31", "every_s": 1}
    assert local.get("/statistics", 400, **too_fine)["code"] == "invalid_request"
    assert local.get("/statistics", 400, since="2026-02-01", until="2026-01-01")["code"] == "invalid_request"
    assert local.get("/me") == {"owner": "local", "role": "operate", "steers_queues": True}


def test_what_is_not_there_and_what_cannot_be_done_is_said_as_a_problem(local: Api) -> None:
    for path in ("/nothing", "", "/", "/tasks/x/y", "/tasks/%2e%2e/%2e%2e/etc/passwd", "/tasks/%2e%2e%2fmcp"):
        answer = local.http.get(f"{local.address}/api/v1{path}")
        assert answer.status_code == 404, path
        assert answer.json()["code"] in ("no_such_path", "task_not_found")
    for method in ("PUT", "PATCH", "TRACE", "OPTIONS", "DELETE", "BREW"):
        answer = local.http.request(method, "/tasks")
        assert (answer.status_code, answer.json()["code"]) == (405, "no_such_method")
        assert answer.headers["allow"] == "GET, POST"
    for task_id in (UNKNOWN, "tsk_", "x" * 3000, "..", "tsk_%00", "a%2Fb"):
        answer = local.http.get(f"/tasks/{task_id}/logs")
        assert answer.status_code == 404
    head = local.http.head("/tasks")
    assert (head.status_code, head.content) == (200, b"")
