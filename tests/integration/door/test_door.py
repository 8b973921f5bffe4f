"""A worker that has neither the store nor its password runs a task through the server's door."""

import hashlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from backburner import Backburner
from backburner.lifecycle import State
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


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    with (
        Deployment(tmp_path, (SCRIPT,)) as deployment,
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
    assert f"the token is for {own}" in told
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
        outside = http.put(f"/files/{other}/a.txt", content=b"x", headers={"X-Sha256": "0"})
        assert outside.status_code == 403
        torn = http.put(f"/files/{own}/a.txt", content=b"x", headers={"X-Sha256": "0"})
        assert torn.status_code == 400
    assert not (door.app.data_dir / "tasks" / own / "a.txt").exists()
    soon = door.token(own, "--for", "1s")
    headers = {"Authorization": f"Bearer {soon}"}
    url = f"{door.server.address}/worker/v1/begin"
    assert wait_until(lambda: httpx2.post(url, json={}, headers=headers).status_code == 403)


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
