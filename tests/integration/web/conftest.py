"""Two servers for all tests of the API: one that asks for tokens, and one that does not."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from backburner.mcp.transport.auth import hash_token
from tests import services
from tests.deployment import Deployment

PROGRAM = Path(__file__).with_name("app.py")
FINAL = {"succeeded", "failed", "cancelled", "timed_out", "expired"}
UNKNOWN = "tsk_" + "0" * 36
#: Names of tokens, their owners and their scopes.
TOKENS = {
    "alice": ("alice", ""),
    "bob": ("bob", ""),
    "carol": ("carol", ""),
    "alices-screen": ("alice", "backburner:read"),
    "wall": ("ops", "backburner:read-all"),
    "ops": ("ops", "backburner:operate-all"),
    "strange": ("alice", "backburner:operate backburner:rule-the-world"),
}
#: Signs the JSON Web Tokens that the server takes.
SIGNING_KEY = ec.generate_private_key(ec.SECP256R1())


@dataclass(frozen=True)
class Event:
    """One of an event stream."""

    name: str
    data: Any
    id: str = ""


class Api:
    """Who asks, and where."""

    def __init__(self, address: str, token: str | None = None) -> None:
        bearer = {} if token is None else {"Authorization": f"Bearer token-of-{token}"}
        self.address = address
        self.http = httpx2.Client(base_url=f"{address}/api/v1", headers=bearer, timeout=30)

    def close(self) -> None:
        self.http.close()

    def get(self, path: str, status: int = 200, **query: Any) -> Any:
        return self.checked(self.http.get(path, params=query), status)

    def post(self, path: str, body: Any = None, status: int = 200) -> Any:
        return self.checked(self.http.post(path, json={} if body is None else body), status)

    def delete(self, path: str, status: int = 204) -> Any:
        return self.checked(self.http.delete(path), status)

    def checked(self, answer: httpx2.Response, status: int) -> Any:
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    def submit(self, tool: str, **inputs: Any) -> str:
        task_id: str = self.post("/tasks", {"tool": tool, "inputs": inputs}, 201)["task_id"]
        return task_id

    def until(self, task_id: str, fits: Callable[[Any], bool]) -> Any:
        """Follow a task until it is as it should be; then all about it."""
        with contextlib.closing(self.stream(f"/tasks/{task_id}/logs/stream")) as events:
            for event in events:
                if event.name == "task" and fits(event.data):
                    return self.get(f"/tasks/{task_id}")
        raise AssertionError(self.get(f"/tasks/{task_id}"))

    def done(self, task_id: str) -> Any:
        return self.until(task_id, lambda task: task["state"] in FINAL)

    def finished(self, tool: str, **inputs: Any) -> str:
        task_id = self.submit(tool, **inputs)
        self.done(task_id)
        return task_id

    def stream(self, path: str, last: str | None = None, **query: Any) -> Generator[Event, None, None]:
        """The events of a stream until it ends. The first word has come when this is first asked."""
        headers = {} if last is None else {"Last-Event-ID": last}
        with self.http.stream("GET", path, params=query, headers=headers) as answer:
            assert answer.status_code == 200, answer.read()
            said: dict[str, str] = {}
            for line in answer.iter_lines():
                name, _, value = line.partition(": ")
                if line == ": open":
                    yield Event("open", None)
                elif name in ("event", "id", "data"):
                    said[name] = value
                elif not line and "data" in said:
                    yield Event(said["event"], json.loads(said["data"]), said.get("id", ""))
                    said = {}


@dataclass(frozen=True)
class Served:
    """A server, and what it is made of."""

    address: str
    deployment: Deployment


@contextlib.contextmanager
def served(folder: Path, **settings: str) -> Iterator[Served]:
    """A server that has finished a task."""
    made = Deployment(folder, (PROGRAM,), {"supervisor__idle_exit_s": "0", **settings})
    with made, made.http() as server, contextlib.closing(Api(server.address, "alice")) as api:
        services.running.add(server.pid)
        api.finished("count")
        if supervisor := made.supervisor():
            services.running.add(supervisor.pid)
        yield Served(server.address, made)


@pytest.fixture(scope="session")
def guarded_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that asks for tokens."""
    folder = tmp_path_factory.mktemp("guarded")
    lines = [
        f"{name} {hash_token(f'token-of-{name}')} {scopes} owner={owner}\n"
        for name, (owner, scopes) in TOKENS.items()
    ]
    (folder / "tokens").write_text("".join(lines))
    key = {**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(SIGNING_KEY.public_key())), "kid": "k1"}
    (folder / "jwks.json").write_text(json.dumps({"keys": [key]}))
    auth = {"tokens": str(folder / "tokens"), "jwks": str(folder / "jwks.json")}
    with served(folder, **{f"http__auth__{name}": path for name, path in auth.items()}) as server:
        yield server


@pytest.fixture(scope="session")
def guarded(guarded_server: Served) -> str:
    """The address of a server that asks for tokens."""
    return guarded_server.address


@pytest.fixture(scope="session")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server for whoever is on this host."""
    with served(tmp_path_factory.mktemp("open")) as server:
        yield server


@pytest.fixture(scope="session")
def open_address(open_server: Served) -> str:
    """The address of a server for whoever is on this host."""
    return open_server.address


@pytest.fixture
def local(open_address: str) -> Iterator[Api]:
    with contextlib.closing(Api(open_address)) as api:
        yield api


@pytest.fixture
def by(guarded: str) -> Iterator[Callable[[str | None], Api]]:
    """The API for the bearer of a token."""
    with contextlib.ExitStack() as stack:
        yield lambda token: stack.enter_context(contextlib.closing(Api(guarded, token)))
