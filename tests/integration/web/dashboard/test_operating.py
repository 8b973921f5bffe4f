"""Queues, workers and clients in the dashboard."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from importlib.resources import files
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from backburner.core.monitoring import ClientTimeout
from backburner.service.tasks import TaskService
from backburner.settings import Settings
from backburner.store import open_store
from backburner.tools.spec import Registry, ToolSpec
from tests import services
from tests.deployment import Deployment
from tests.integration.web.conftest import PROGRAM, Api, Served
from tests.integration.web.dashboard.conftest import Open, new_link

QUEUE = "gpu_small"


def store_of(server: Served) -> str:
    return server.deployment.environment["BACKBURNER_STORE"]


@pytest.fixture(scope="module")
def unused(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose store has nothing in it, and for which nobody works."""
    made = Deployment(tmp_path_factory.mktemp("unused"), (PROGRAM,))
    with made, made.http() as server:
        services.running.add(server.pid)
        with contextlib.closing(Api(server.address)) as api:
            assert services.wait_until(lambda: bool(api.get("/workers")["workers"]))
        made.close()
        yield Served(server.address, made)


def test_a_new_store_says_what_to_do_next(unused: Served, windows: Callable[..., tuple[Any, Page]]) -> None:
    _, page = windows(unused.address)
    page.goto(new_link(unused))
    expect(page.get_by_role("heading", name="No tasks yet")).to_be_visible()
    tools = page.get_by_role("main").get_by_role("link", name="Tools")
    expect(tools).to_have_attribute("href", "/dashboard/tools")
    page.goto("/dashboard/clients")
    expect(page.get_by_role("main")).to_contain_text("No client has timed out on a call")
    page.goto("/dashboard/workers")
    expect(page.get_by_role("heading", name="No workers running")).to_be_visible()
    expect(page.get_by_role("main")).to_contain_text("backburner worker APP.py")
    submit_elsewhere(unused)
    expect(page.get_by_role("heading", name="No workers", exact=True)).to_be_visible()
    page.goto("/")
    expect(page.get_by_role("main")).to_contain_text("No worker for the queue cpu_standard: 1 waiting.")


def submit_elsewhere(server: Served) -> None:
    """A task of a program that starts no workers."""
    tools = Registry()
    tools.add(ToolSpec("count", lambda inputs, context: None))
    with (
        contextlib.closing(open_store(store_of(server))) as store,
        contextlib.closing(TaskService(store, tools, Settings(store=store.url))) as service,
    ):
        service.submit("count", {})


def test_a_queue_is_paused_and_resumed(look: Open, local: Api) -> None:
    page = look("/dashboard/queues")
    row = page.locator(f"#queue-{QUEUE}")
    row.get_by_role("button", name=f"Pause {QUEUE}").click()
    try:
        expect(row).to_contain_text("paused")
        (paused,) = [one for one in local.get("/queues")["queues"] if one["paused_at"]]
        assert paused["queue"] == QUEUE
        expect(look("/").locator(f"#notice-{QUEUE}")).to_have_text(f"The queue {QUEUE} is paused.")
        row.get_by_role("button", name=f"Resume {QUEUE}").click()
        expect(row.get_by_role("button", name=f"Pause {QUEUE}")).to_be_visible()
        assert not any(one["paused_at"] for one in local.get("/queues")["queues"])
    finally:
        local.post(f"/queues/{QUEUE}/resume")


def test_queues_are_steered_only_by_who_steers_everyones(look_as: Open, by: Callable[[str], Api]) -> None:
    queues = by("ops").get("/queues")["queues"]
    for token, buttons in (("alice", 0), ("wall", 0), ("ops", len(queues))):
        page = look_as(token, "/dashboard/queues")
        expect(page.get_by_role("main").get_by_role("button")).to_have_count(buttons)


def test_workers_show_what_they_run_and_who_they_are(look: Open, local: Api) -> None:
    task_id = local.submit("wait")
    try:
        local.until(task_id, lambda task: task["state"] == "running")
        page = look("/dashboard/workers")
        row = page.locator("tr", has=page.locator(f"a[href='/dashboard/tasks/{task_id}']"))
        expect(row).to_be_visible()

        def at_it() -> list[Any]:
            workers = local.get("/workers")["workers"]
            return [one for one in workers if one["current_task_id"] == task_id and one["pid"]]

        assert services.wait_until(at_it)  # with the next heartbeat
        (worker,) = at_it()
        for shown in ("running", "cpu_standard", "local", str(worker["pid"])):
            expect(row).to_contain_text(shown)
        idle = page.locator("details", has_text="io").first
        expect(idle.locator("tbody tr").first).to_be_hidden()
        idle.locator("summary").click()
        expect(idle.locator("tbody tr").first).to_be_visible()
    finally:
        local.post(f"/tasks/{task_id}/cancel")
        local.done(task_id)
    expect(row).to_have_count(0)
    expect(idle).to_have_attribute("open", "")


@pytest.fixture(scope="module")
def learned(open_server: Served) -> Iterator[None]:
    """Clients that gave up calls, lately and long ago."""
    with contextlib.closing(open_store(store_of(open_server))) as store:
        now = store.now_ms()
        for name, version, waited_ms in (
            ("opencode", "1.2.3", 45_000),
            ("<b>my agent</b>", "2.0", 12_000),
            ("Visual Studio Code", "1.121", 12_000),
        ):
            month_ago = now - 40 * 86_400_000
            seen_at = now if name == "opencode" else month_ago
            store.keep_time_out(ClientTimeout(name, version, "stdio", seen_at, waited_ms, waited_ms))
        yield
        store.forget_time_outs()


@pytest.mark.usefixtures("learned")
def test_clients_show_how_long_they_wait_and_from_where_that_is_known(look: Open) -> None:
    page = look("/dashboard/clients")
    opencode = page.locator("li", has_text="opencode")
    expect(opencode).to_contain_text("held for 36 s, longer with progress")
    for shown in ("Learned", "none", "45 s", "restarts the idle clock"):
        expect(opencode).to_contain_text(shown)
    expect(page.locator("li", has_text="<b>my agent</b>")).to_contain_text("Assumed")
    expect(page.locator("li", has_text="Visual Studio Code")).to_contain_text("held until they end")


@pytest.mark.usefixtures("learned")
def test_axe_finds_nothing_serious(look: Open, local: Api) -> None:
    axe = (files("axe_playwright_python") / "axe.min.js").read_text()
    local.finished("fail")
    for scheme in ("light", "dark"):
        page = look("/", color_scheme=scheme)
        for path in ("/", "/dashboard/queues", "/dashboard/workers", "/dashboard/clients"):
            page.goto(path)
            page.evaluate(axe)
            found = page.evaluate("axe.run().then(({ violations }) => violations)")
            serious = [one for one in found if one["impact"] in ("serious", "critical")]
            assert [(path, one["id"], one["nodes"][0]["html"]) for one in serious] == []
