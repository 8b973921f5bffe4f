"""What Prometheus reads at `/metrics`, by its own parser, of a real server with a real supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from backburner.mcp.transport.auth import hash_token
from tests.deployment import ROOT, Deployment
from tests.integration.mcp_server.harness import Peer, connect
from tests.integration.mcp_server.lasting import Lasting
from tests.session_by_hand import Session

pytestmark = pytest.mark.slow

SERVER = Path(__file__).with_name("observed_server.py")
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lasting]:
    with Lasting(tmp_path_factory.mktemp("observed")) as made:
        yield made


@pytest.fixture
def deployment(lasting: Lasting) -> Iterator[Deployment]:
    with lasting.deployment(SERVER) as made:
        yield made


@pytest.fixture
def address(lasting: Lasting, deployment: Deployment) -> str:
    """Of a server that the tests share."""
    return lasting.url(deployment).removesuffix("/mcp")


def calling(address: str) -> contextlib.AbstractAsyncContextManager[Peer]:
    return connect(f"{address}/mcp", "2025", tasks=False)


class Scrape:
    """The samples of one scrape, by name and labels."""

    def __init__(self, families: list[Any]) -> None:
        self.types = {family.name: family.type for family in families}
        self.samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        return float(self.samples.get((name, frozenset(labels.items())), 0.0))


async def scrape(address: str) -> Scrape:
    async with httpx2.AsyncClient(timeout=10) as http:
        answer = await http.get(f"{address}/metrics")
    assert answer.status_code == 200
    return Scrape(list(text_string_to_metric_families(answer.text)))


async def comes(address: str, at_least: float, name: str, **labels: str) -> Scrape:
    """Scrape until the sample has come so far: what ended a moment ago is counted at the next scrape."""
    return await until(address, lambda found: found(name, **labels) >= at_least)


async def until(address: str, seen: Callable[[Scrape], bool]) -> Scrape:
    async with asyncio.timeout(60):
        while True:
            if seen(found := await scrape(address)):
                return found
            await asyncio.sleep(0.2)


async def test_what_became_of_tasks_is_counted_by_tool_and_queue(address: str) -> None:
    before = await scrape(address)
    async with calling(address) as peer:
        await peer.call("work", {"seconds": 0.3})
        for tool in ("fail", "linger", "stumble"):
            await peer.call(tool)
    of = {"tool": "stumble", "queue": "cpu_standard"}
    after = await comes(address, 1, "backburner_tasks_finished_total", **of, state="succeeded")

    def counted(name: str, tool: str, queue: str = "cpu_standard", **labels: str) -> float:
        labels |= {"tool": tool, "queue": queue}
        return after(name, **labels) - before(name, **labels)

    finished, attempts = "backburner_tasks_finished_total", "backburner_attempts_ended_total"
    assert counted(finished, "work", "cpu_small", state="succeeded") == 1
    assert counted(finished, "fail", state="failed") == 1
    assert counted(finished, "linger", state="timed_out") == 1
    assert counted(attempts, "stumble", outcome="lost") == 1
    assert counted(attempts, "stumble", outcome="succeeded") == 1
    assert counted("backburner_retries_total", "stumble") == 1
    assert counted("backburner_retries_total", "fail") == 0
    for name in ("backburner_task_wait_seconds", "backburner_task_run_seconds"):
        assert after.types[name] == "histogram"
        assert counted(f"{name}_count", "stumble") == 2
        assert counted(f"{name}_bucket", "stumble", le="+Inf") == 2
    assert counted("backburner_task_run_seconds_sum", "work", "cpu_small") >= 0.3
    assert counted("backburner_task_run_seconds_bucket", "work", "cpu_small", le="0.25") == 0


@pytest.mark.whole
async def test_two_servers_say_the_same_of_a_store_and_counters_never_go_down(
    deployment: Deployment, address: str
) -> None:
    name, of = "backburner_tasks_finished_total", {"tool": "work", "queue": "cpu_small", "state": "succeeded"}
    with deployment.http() as second:
        here, there = await scrape(address), await scrape(second.address)
        async with calling(address) as peer, calling(second.address) as other:
            await asyncio.gather(peer.call("work", {"seconds": 0.1}), other.call("work", {"seconds": 0.2}))
        here_after = await comes(address, here(name, **of) + 2, name, **of)
        there_after = await comes(second.address, there(name, **of) + 2, name, **of)
        assert here_after(name, **of) - here(name, **of) == 2
        assert there_after(name, **of) - there(name, **of) == 2
        later = await scrape(address)
        for sample, value in here_after.samples.items():
            if sample[0].endswith(("_total", "_count", "_bucket", "_sum")):
                assert later.samples[sample] >= value


async def test_what_waits_and_what_runs_and_which_calls_are_held_is_seen_as_it_is(address: str) -> None:
    async with calling(address) as peer:
        held = asyncio.ensure_future(peer.call("work", {"seconds": 4}))
        running = "backburner_queue_running"
        found = await until(
            address, lambda one: one(running, queue="cpu_small") >= 1 and one("backburner_held_calls") == 1
        )
        assert found("backburner_workers", queue="cpu_small") >= 1
        assert found("backburner_store_up") == 1
        assert found("backburner_store_seconds_count", kind="read") > 0
        await held
    after = await scrape(address)
    assert after("backburner_held_calls") == 0


async def test_calls_that_join_another_s_task_are_counted(address: str, tmp_path: Path) -> None:
    name, gate = "backburner_joined_calls_total", tmp_path / "gate"
    before = (await scrape(address))(name)
    async with calling(address) as first, calling(address) as second, calling(address) as third:
        peers = (first, second, third)
        calls = asyncio.gather(*(peer.call("shared", {"gate": str(gate)}) for peer in peers))
        await comes(address, before + len(peers) - 1, name)
        gate.touch()
        await calls
        await first.call("work", {"seconds": 0})
    assert (await scrape(address))(name) - before == len(peers) - 1


@pytest.mark.whole
async def test_notifications_that_a_client_does_not_take_are_counted(address: str) -> None:
    name = "backburner_notifications_dropped_total"
    before = (await scrape(address))(name)
    async with httpx2.AsyncClient(timeout=20) as http:
        unread = Session(http, f"{address}/mcp")
        await unread.open()
        stream = await asyncio.to_thread(unread.open_a_stream_and_never_read_it)
        with contextlib.closing(stream):
            for number in range(4):  # it is told of each, until too much is on its way that it has not read
                assert "task_id" in await unread.call(f"call-{number}", "write", chars=20_000)
            await comes(address, before + 1, name)


async def test_names_that_are_not_the_app_s_are_one_and_ids_and_owners_are_nowhere(
    deployment: Deployment, address: str
) -> None:
    await scrape(address)
    names = [f"stranger_{number}" for number in range(20)]

    def submit_foreign() -> None:
        from backburner import Backburner

        with deployment.app(lambda: Backburner("foreign", queues={"attic": {}, "cpu_standard": {}})) as app:
            for name in names:
                app.add_tool(_tool(name))
                status = app.service.submit(name, {}, owner="someone@example", queue="attic")
                app.service.cancel(status.task_id, owner="someone@example")

    await asyncio.to_thread(submit_foreign)
    of = {"tool": "other", "queue": "other", "state": "cancelled"}
    found = await comes(address, len(names), "backburner_tasks_finished_total", **of)
    text = repr(found.samples)
    assert not any(word in text for word in ("stranger_", "attic", "someone@example", "tsk_"))


def _tool(name: str) -> Any:
    from backburner.tools.spec import tool_from_function

    def nothing() -> None:
        """Nothing."""

    return tool_from_function(nothing, name=name, queue="attic")


async def test_every_metric_is_in_the_documentation_and_open_metrics_are_spoken_too(
    address: str,
) -> None:
    async with httpx2.AsyncClient(timeout=10) as http:
        answer = await http.get(f"{address}/metrics", headers={"Accept": OPENMETRICS})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    page = (ROOT / "docs" / "guides" / "monitoring.md").read_text()
    families: list[Any] = list(openmetrics(answer.text))  # type: ignore[no-untyped-call]
    for family in families:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert f"| `{name}` |" in page


async def test_where_tokens_are_configured_metrics_want_one(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"prometheus {hash_token('token-of-prometheus')}\n")
    settings = {"http__auth__tokens": str(tokens)}
    with Deployment(tmp_path, (SERVER,), settings) as deployment, deployment.http() as server:
        async with httpx2.AsyncClient(timeout=10) as http:
            assert (await http.get(f"{server.address}/metrics")).status_code == 401
            bearer = {"Authorization": "Bearer token-of-prometheus"}
            answer = await http.get(f"{server.address}/metrics", headers=bearer)
    assert answer.status_code == 200
    assert "backburner_store_up 1.0" in answer.text


async def test_a_store_that_cannot_be_read_is_seen_as_down(tmp_path: Path) -> None:
    with Deployment(tmp_path, (SERVER,)) as deployment, deployment.http() as server:
        assert (await scrape(server.address))("backburner_store_up") == 1
        damage(tmp_path)
        await until(server.address, lambda found: found("backburner_store_up") == 0)


def damage(folder: Path) -> None:
    for file in folder.glob("tasks.db*"):
        if file.is_file():
            file.write_bytes(b"not a database" * 1000)


def test_without_prometheus_client_the_page_says_what_to_install(tmp_path: Path) -> None:
    program = """
import sys
from importlib.abc import MetaPathFinder
from starlette.testclient import TestClient

class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "prometheus_client":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
from backburner import Backburner
bb = Backburner("plain", store="sqlite://")
answer = TestClient(bb.http_app(), base_url="http://127.0.0.1").get("/metrics")
print(answer.status_code, answer.text)
"""
    script = tmp_path / "plain.py"
    script.write_text(program)
    said = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout.startswith("501 Metrics need prometheus-client.")
    assert said.stdout.strip().endswith("pip install 'backburner[metrics]'")
