"""A worker that has neither the store nor its password runs a task through the server's door."""

import contextlib
import hashlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from backburner import Backburner
from backburner.core.lifecycle import State
from tests import warm
from tests.deployment import Deployment, HttpServer, foreign_environment
from tests.services import until, wait_until

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("door_server.py")


class Door:
    """The server, its store, and workers elsewhere."""

    def __init__(self, deployment: Deployment, server: HttpServer, app: Backburner) -> None:
        self.deployment, self.server, self.app = deployment, server, app

    def submit(self, tool: str) -> str:
        return self.app.service.submit(tool, {}).task_id

    def token(self, task_id: str, *words: str) -> str:
        command = [warm.BACKBURNER, "token", "task", task_id, *words]
        done = subprocess.run(
            command, env=self.deployment.environment, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def worker(self, task_id: str, token: str) -> "subprocess.Popen[str]":
        """A process that is told of no store."""
        folder = self.deployment.folder / "elsewhere"
        folder.mkdir(exist_ok=True)
        environment = {
            **foreign_environment(),
            "PYTHONPATH": self.deployment.environment["PYTHONPATH"],
            "XDG_STATE_HOME": str(folder),
            "BACKBURNER_TASK_TOKEN": token,
            "BACKBURNER_SUPERVISOR__HEARTBEAT_S": "0.2",
        }
        command = [warm.BACKBURNER, "run-task", task_id]
        return subprocess.Popen(
            [*command, "--server", self.server.address],
            env=environment,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with (
        Deployment(tmp_path_factory.mktemp("door"), (SCRIPT,)) as deployment,
        deployment.http() as server,
        deployment.app(_app) as app,
    ):
        yield Door(deployment, server, app)


def _app() -> Backburner:
    from tests.integration.door.door_server import bb

    for part in ("settings", "data_dir"):  # the environment is this deployment's now
        vars(bb).pop(part, None)
    return bb


async def test_all_that_a_tool_says_keeps_and_asks_arrives(door: Door) -> None:
    task_id = door.submit("survey")
    worker = door.worker(task_id, door.token(task_id))
    store, service = door.app.store, door.app.service
    await until(lambda: store.head(task_id).state is State.INPUT_REQUIRED)
    (question,) = service.status(task_id).questions
    service.answer_input(task_id, {question.key: {"action": "accept", "content": {"name": "Ada"}}})
    output, _ = worker.communicate(timeout=60)
    assert worker.returncode == 0, output
    task = store.get(task_id)
    assert (task.state, task.result) == (State.SUCCEEDED, {"for": "Ada"})
    assert [line.message for line in store.logs(task_id)] == ["looking around"]
    (artifact,) = store.artifacts(task_id)
    content = (door.app.data_dir / "tasks" / artifact.path).read_bytes()
    assert hashlib.sha256(content).hexdigest() == artifact.sha256
    assert [each.current_task_id for each in store.workers() if each.queue == "elsewhere"] == []
    # Who comes with the same task once more finds that it is over.
    again = door.worker(task_id, door.token(task_id))
    assert "does not wait for a worker" in again.communicate(timeout=60)[0]


def test_a_token_reaches_its_task_alone_and_only_for_its_time(door: Door) -> None:
    own, other = door.submit("dig"), door.submit("dig")
    token = door.token(own)
    told = door.worker(other, token).communicate(timeout=60)[0]
    assert "the token is for another task" in told
    for bad in ("nonsense", token[:-3] + "abc"):
        answer = httpx2.post(
            f"{door.server.address}/worker/v1/begin", json={}, headers={"Authorization": f"Bearer {bad}"}
        )
        assert answer.status_code == 403
    with httpx2.Client(base_url=f"{door.server.address}/worker/v1") as http:
        http.headers["Authorization"] = f"Bearer {token}"
        for verb, said in (
            ("claim", {"worker": "sup_another_1"}),
            ("heartbeat", {"leases": [], "workers": [{"worker_id": "x"}]}),
            ("report", {}),
            ("report", [1]),
        ):
            assert http.post(f"/{verb}", json=said).status_code == 400
        assert http.post("/delete", json={}).status_code == 403
    soon = door.token(own, "--for", "1s")
    headers = {"Authorization": f"Bearer {soon}"}
    url = f"{door.server.address}/worker/v1/begin"
    assert wait_until(lambda: httpx2.post(url, json={}, headers=headers).status_code == 403)


class ByHand:
    """A worker that says what the test wants it to."""

    def __init__(self, door: Door, task_id: str) -> None:
        self.door, self.task_id = door, task_id
        bearer = {"Authorization": f"Bearer {door.token(task_id)}"}
        self.http = httpx2.Client(base_url=f"{door.server.address}/worker/v1", headers=bearer, timeout=30)
        begun = self.http.post("/begin", json={}).json()
        self.named = {"worker": f"wrk_{begun['supervisor_id'].removeprefix('sup_')}_00", "attempt": 1}

    def claim(self) -> None:
        assert self.say("claim").json() is not None
        assert self.report(["Started", {"pid": 1}]).json() == {"lost": False}

    def say(self, verb: str, **said: Any) -> httpx2.Response:
        return self.http.post(f"/{verb}", json={**self.named, **said})

    def report(self, *changes: Any) -> httpx2.Response:
        return self.say("report", changes=[{"type": kind, **body} for kind, body in changes])

    def send(self, data: bytes, artifact_id: str = f"art_{7:032}", **said: Any) -> httpx2.Response:
        told = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest(), **self.named, **said}
        return self.http.put(f"/files/{artifact_id}", content=data, params=told)

    def made(self, data: bytes, **other: Any) -> list[Any]:
        """The report of a file."""
        artifact_id = f"art_{7:032}"
        described = {
            "artifact_id": artifact_id,
            "task_id": self.task_id,
            "attempt": 1,
            "name": "map.bin",
            "kind": "file",
            "size_bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
            "path": f"{self.task_id}/artifacts/{artifact_id}/map.bin",
            "created_at": 1,
        }
        return ["Registered", {"artifact": {**described, **other}}]

    def files(self) -> dict[str, bytes]:
        """All files that the server has of the task."""
        found = (self.door.app.data_dir / "tasks" / self.task_id).rglob("*")
        return {path.name: path.read_bytes() for path in found if path.is_file()}


@pytest.fixture
def worker(door: Door) -> Iterator[ByHand]:
    made = ByHand(door, door.submit("dig"))
    with contextlib.closing(made.http):
        yield made


def test_a_file_is_taken_only_from_the_holder_of_the_lease_and_as_its_hash_says(worker: ByHand) -> None:
    assert worker.send(b"too early").status_code == 400
    worker.claim()
    assert worker.send(b"x", attempt=2).status_code == 400
    assert worker.send(b"x", worker="wrk_another_00").status_code == 400
    assert worker.send(b"x", sha256="0" * 64).status_code == 400
    assert worker.send(b"longer", size=1).status_code == 400
    assert worker.send(b"x", size="-1").status_code == 400
    for name in ("a%00b", "..%2f..%2fsubmit.key", "art_1"):
        assert worker.send(b"x", name).status_code in (400, 404)
    assert worker.files() == {}
    assert worker.report(worker.made(b"never sent")).status_code == 400


def test_a_kept_file_is_neither_replaced_nor_removed_through_the_door(worker: ByHand) -> None:
    worker.claim()
    assert worker.send(b"first").status_code == 200
    assert worker.report(worker.made(b"first")).json() == {"lost": False}
    assert worker.send(b"other").status_code == 400
    assert worker.send(b"other", sha256="0" * 64).status_code == 400
    assert worker.report(worker.made(b"other")).status_code == 400
    assert worker.files() == {"map.bin": b"first"}
    # A worker that heard no answer says the same once more.
    assert worker.send(b"first").status_code == 200
    assert worker.report(worker.made(b"first")).json() == {"lost": False}
    assert worker.files() == {"map.bin": b"first"}


def test_a_pass_is_void_when_its_task_has_ended(worker: ByHand) -> None:
    worker.claim()
    assert worker.report(["Succeeded", {"result_json": "1"}]).json() == {"lost": False}
    for verb in ("begin", "claim", "head", "input_requests"):
        assert worker.say(verb).status_code == 410
    assert worker.report(["Logged", {"lines": []}]).status_code == 410
    assert worker.say("heartbeat", leases=[], workers=[]).status_code == 410
    assert worker.say("answer", answers={}).status_code == 410
    assert worker.send(b"late").status_code == 410
    assert worker.say("begin").json() == {"error": "task_ended", "state": "succeeded"}
    assert worker.files() == {}


LINE = {"seq": 1, "ts": 1, "stream": "log", "level": "info", "message": "m"}
QUESTION = {"key": "k", "attempt": 1, "method": "elicitation/create", "params": {}, "asked_at": 1}


def test_reports_are_checked_as_those_of_a_runner_are(worker: ByHand) -> None:
    worker.claim()
    worker.send(b"data")
    error = {"type": "x", "message": "y"}
    for change in (
        ["Succeeded", {"result_json": "not json"}],
        ["Succeeded", {"result_json": "NaN"}],
        ["Succeeded", {"result_json": '"\\u0000"'}],
        ["Succeeded", {"result_json": "1", "metrics": {"wall_s": -1}}],
        ["Succeeded", {"result_json": "1", "metrics": {"mood": 1}}],
        ["Failed", {"error": {**error, "message": "a\0b"}}],
        ["Checkpointed", {"data_json": "{"}],
        ["Progressed", {"progress": {"percent": "nan"}}],
        ["Logged", {"lines": [{**LINE, "seq": -1}]}],
        ["Logged", {"lines": [{**LINE, "message": "a\0b"}]}],
        ["Started", {"pid": -1}],
        ["HandedBack", {"reason": "a\0b"}],
        ["Asked", {"requests": [{**QUESTION, "task_id": worker.task_id, "key": "a\0b"}]}],
        ["Asked", {"requests": []}],
        ["Deleted", {}],
        worker.made(b"data", size_bytes=-1),
        worker.made(b"data", sha256="0"),
        worker.made(b"data", name="a\0b"),
        worker.made(b"data", path="../../etc/passwd"),
        worker.made(b"data", task_id="tsk_another"),
    ):
        answer = worker.report(change)
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request"), change
    assert worker.http.post("/report", content=b"[" * 100_000).status_code == 400
    assert worker.door.app.service.status(worker.task_id).task.state is State.RUNNING
    assert worker.door.app.store.artifacts(worker.task_id) == []


async def test_a_cancel_reaches_the_worker_also_after_the_server_was_away(door: Door) -> None:
    task_id = door.submit("dig")
    worker = door.worker(task_id, door.token(task_id))
    await until(lambda: door.app.store.head(task_id).state is State.RUNNING)
    door.server.kill()
    door.server.start()
    door.app.service.cancel(task_id)
    worker.communicate(timeout=60)
    task = door.app.store.get(task_id)
    assert (task.state, task.attempt) == (State.CANCELLED, 1)


def test_the_door_is_shut_unless_it_is_opened(tmp_path: Path) -> None:
    settings = {"http__worker_door": "false"}
    server = Path(__file__).parents[1] / "mcp_server" / "limited_server.py"
    with Deployment(tmp_path, (server,), settings) as deployment, deployment.http() as shut:
        assert httpx2.post(f"{shut.address}/worker/v1/begin", json={}).status_code == 404
