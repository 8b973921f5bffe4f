"""Clients that hold results against output schemas call slow tools: in time, late, and with much to say.

Each client is a program in `clients/` that only calls tools (`typed_calls_….py`, `typed_calls_….mjs`).
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.deployment import Deployment
from tests.system.interop import environment
from tests.system.interop.serving import of_others, serving
from tests.system.interop.test_clients import in_python
from tests.system.interop.typed_server import Relaxed

pytestmark = pytest.mark.slow

SERVER = environment.HERE / "typed_server.py"
COMMANDS: dict[str, Callable[[], list[str]]] = {
    "mcp_1": lambda: in_python(str(environment.python("mcp1")), "typed_calls_mcp_1.py"),
    "mcp_2": lambda: in_python(sys.executable, "typed_calls_mcp_2.py"),
    "fastmcp_4": lambda: in_python(str(environment.python("fastmcp")), "typed_calls_fastmcp_4.py"),
    "typescript_1": lambda: environment.node_program("typed_calls_typescript_1.mjs"),
    "typescript_2": lambda: environment.node_program("typed_calls_typescript_2.mjs"),
}
CLIENTS = [pytest.param(client, marks=() if client == "mcp_2" else pytest.mark.whole) for client in COMMANDS]

LATE = {"tool": "relax", "arguments": {"seconds": 3}}
MODEL = {"tool": "relax", "arguments": {"steps": 150_000}}
TEXT = {"tool": "write", "arguments": {"length": 1_000_000}}
IMAGE = {"tool": "draw", "arguments": {"length": 2_000_000}}
#: By the name of a client: how it reaches the server, and what it calls.
CALLS: dict[str, tuple[str, dict[str, dict[str, Any]]]] = {
    "a-program": (
        "stdio",
        {
            "held": {"tool": "relax", "arguments": {"seconds": 0}},
            "late": LATE,
            "asked": {**LATE, "meta": {"async": True}},
            "refused": {"tool": "relax", "arguments": {"seconds": "long"}},
            "model": MODEL,
            "text": TEXT,
            "image": IMAGE,
        },
    ),
    "over-http": ("http", {"model": MODEL, "text": TEXT, "image": IMAGE}),
    "impatient-host": ("http", {"late": LATE}),
    "claude-ai": (
        "stdio",
        {"image": IMAGE, "untyped": {"tool": "untyped", "arguments": {"length": 200_000}}},
    ),
}
RELAXED = {"energy": -1.5, "steps": [0, 1, 2], "notes": "well"}


class Programs:
    """Runs each client program once under each name, and keeps what it said."""

    def __init__(self, deployment: Deployment, url: str) -> None:
        self._environment = deployment.environment
        self._servers = {"http": ["http", url], "stdio": ["stdio", *deployment.command("stdio")]}
        self._said: dict[tuple[str, str], dict[str, Any]] = {}

    def outcome(self, client: str, scenario: str, *, name: str = "a-program") -> dict[str, Any]:
        if (client, name) not in self._said:
            transport, calls = CALLS[name]
            ran = subprocess.run(
                [*of_others(COMMANDS[client]), name, json.dumps(calls), *self._servers[transport]],
                env=self._environment,
                capture_output=True,
                text=True,
                timeout=100,
                check=False,
            )
            lines = [json.loads(line) for line in ran.stdout.splitlines()]
            self._said[client, name] = {line["scenario"]: line for line in lines} or {"": ran.stderr}
        said = self._said[client, name]
        assert scenario in said, said
        outcome: dict[str, Any] = said[scenario]
        return outcome


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    settings = {
        "supervisor__idle_exit_s": "0",
        "mcp__patience_s": "0.5",
        "mcp__join_window_s": "0",  # all these clients make the same calls
        "mcp__client_patience": '{"impatient-host": "0.5s"}',
        "mcp__client_result_tokens": '{"a-program": "any"}',
    }
    deployment = Deployment(tmp_path_factory.mktemp("typed"), (SERVER,), settings)
    with serving(deployment) as url:
        yield Programs(deployment, url)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_tool_s_output_schema_is_listed_as_its_author_has_it(programs: Programs, client: str) -> None:
    schema = programs.outcome(client, "listed")["schemas"]["relax"]
    assert schema["properties"].keys() == Relaxed.model_fields.keys()
    assert schema["required"] == ["energy", "steps", "notes"]
    assert "anyOf" not in schema


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("scenario", ["held", "late"])
def test_a_client_that_may_wait_for_ever_gets_the_result_and_never_a_handle(
    programs: Programs, client: str, scenario: str
) -> None:
    outcome = programs.outcome(client, scenario)
    assert (outcome.get("isError"), outcome.get("structured")) == (False, RELAXED), outcome
    if client == "fastmcp_4":
        assert outcome["data"] == RELAXED


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_that_gives_up_is_told_of_the_task_before_it_does(programs: Programs, client: str) -> None:
    outcome = programs.outcome(client, "late", name="impatient-host")
    assert (outcome.get("isError"), outcome.get("structured")) == (True, None), outcome
    texts = " ".join(block["text"] for block in outcome["content"])
    assert "This is not a failure" in texts
    job_id = outcome["meta"]["data"]["job_id"]
    assert re.search(rf"task {job_id}.*call wait_for_task", texts)


@pytest.mark.parametrize("client", CLIENTS)
def test_no_strict_client_takes_a_handle_in_place_of_what_the_schema_promises(
    programs: Programs, client: str
) -> None:
    """Why a handle is only for those who ask for it: the day this fails, there may be a better way."""
    message = programs.outcome(client, "asked")["message"]
    assert "has an output schema but did not return structured content" in message


@pytest.mark.parametrize("client", CLIENTS)
def test_a_refused_call_says_why_to_strict_clients_too(programs: Programs, client: str) -> None:
    outcome = programs.outcome(client, "refused")
    assert outcome.get("isError") is True, outcome
    assert outcome["structured"] is None


@pytest.mark.parametrize("client", CLIENTS)
def test_a_large_result_is_whole(programs: Programs, client: str) -> None:
    model = programs.outcome(client, "model")
    assert model["structured"]["steps"] == list(range(150_000))
    (text,) = model["content"]
    assert text["text"] == len(json.dumps({**RELAXED, "steps": list(range(150_000))}, separators=(",", ":")))
    if client == "fastmcp_4":
        assert model["data"] == model["structured"]
    written = programs.outcome(client, "text")
    assert written["structured"] == {"result": "x" * 1_000_000}
    assert written["content"] == [{"type": "text", "text": 1_000_000}]
    before, image, after = programs.outcome(client, "image")["content"]
    assert (before["text"], after["text"]) == ("before", "after")
    assert (image["type"], image["mimeType"], image["data"]) == ("image", "image/png", 2_666_668)


@pytest.mark.parametrize("client", CLIENTS)
def test_over_http_what_the_schema_promises_is_whole_and_the_rest_fits_into_one_event(
    programs: Programs, client: str
) -> None:
    model = programs.outcome(client, "model", name="over-http")
    assert model.get("isError") is False, model
    assert model["structured"]["steps"] == list(range(150_000))
    about, beginning, end, link = model["content"]
    assert re.search(r"Its shape: \{content: .*steps: \[150000 × number\]", about["text"])
    address = next(line for line in about["text"].splitlines() if line.startswith("task://"))
    assert re.fullmatch(r"task://tsk_\w+/result\?offset=0&length=65536", address)
    assert beginning["text"].startswith('{"energy":-1.5,"steps":[0,1,2')
    assert end["text"].startswith("[… about ")
    assert end["text"].endswith('149999],"notes":"well"}')
    assert address.startswith(link["uri"])
    assert programs.outcome(client, "text", name="over-http")["structured"] == {"result": "x" * 1_000_000}
    _has_linked_image(programs.outcome(client, "image", name="over-http"))


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_that_takes_less_gets_a_preview_and_links(programs: Programs, client: str) -> None:
    _has_linked_image(programs.outcome(client, "image", name="claude-ai"))
    untyped = programs.outcome(client, "untyped", name="claude-ai")
    about, beginning, end, link = untyped["content"]
    assert "200" in about["text"]
    assert beginning == {"type": "text", "text": "x" * 2000}
    assert end["text"].endswith("]\n" + "x" * 1000)
    assert (link["type"], link["mimeType"]) == ("resource_link", "application/json")


def _has_linked_image(outcome: dict[str, Any]) -> None:
    before, image, after = outcome["content"]
    assert (before["text"], after["text"]) == ("before", "after")
    assert (image["type"], image["mimeType"], image["size"]) == ("resource_link", "image/png", 2_000_000)
    assert re.fullmatch(r"task://tsk_\w+/artifacts/art_\w+/image-2\.png", image["uri"])
