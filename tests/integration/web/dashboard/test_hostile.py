"""What tools print, return and make is hostile: the pages show it, and nothing of it happens."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.integration.web.conftest import Api, Served
from tests.integration.web.dashboard.conftest import Open

SCRIPT = "<script>alert(1)</script>"
PICTURE = "<img src=x onerror=alert(2)>"
#: A script that a browser would run.
RUNS = "main script:not([type='application/json'])"
TURNED = "\u202egnp.exe\u202c"


@pytest.fixture(scope="module")
def hostile(open_address: str) -> str:
    api = Api(open_address)
    try:
        return api.finished("hostile", text=SCRIPT + PICTURE + TURNED)
    finally:
        api.close()


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_task_shows_hostile_text_as_text(look: Open, hostile: str, scheme: str) -> None:
    page = look(f"/dashboard/tasks/{hostile}", color_scheme=scheme)
    main = page.get_by_role("main")
    expect(main).to_contain_text(SCRIPT)
    expect(main).to_contain_text(PICTURE)
    expect(main).to_contain_text("\\u202egnp.exe")
    expect(main).not_to_contain_text("\u202e")
    expect(
        page.locator("main script:not([type='application/json']), main iframe, main object")
    ).to_have_count(0)


def test_lists_and_filters_show_hostile_text_as_text(look: Open, hostile: str) -> None:
    page = look("/")
    for path in ("/dashboard/tasks", f"/dashboard/tasks?tool={SCRIPT}&tag={PICTURE}", "/dashboard/tools"):
        page.goto(path)
        expect(page.get_by_role("main")).to_be_visible()
        expect(page.locator(f"{RUNS}, main img[onerror]")).to_have_count(0)


def test_a_drawing_with_a_script_is_a_picture_or_a_file(look: Open, hostile: str, local: Api) -> None:
    page = look(f"/dashboard/tasks/{hostile}")
    (drawing,) = [
        one for one in local.get(f"/tasks/{hostile}/artifacts")["artifacts"] if one["name"].endswith(".svg")
    ]
    answer = page.request.get(drawing["download_url"])
    assert "attachment" in answer.headers["content-disposition"]
    assert "sandbox" in answer.headers.get("content-security-policy", "")


def test_a_script_that_a_tool_made_is_saved_by_its_base_name_and_runs_on_no_page(
    browser: Browser, cookie: dict[str, Any], hostile: str, local: Api
) -> None:
    (script,) = [
        one for one in local.get(f"/tasks/{hostile}/artifacts")["artifacts"] if one["name"].endswith(".js")
    ]
    load = """url => new Promise(heard => {
        const script = document.createElement("script");
        script.onload = () => heard("ran");
        script.onerror = () => heard("refused");
        script.src = new URL(url).pathname + new URL(url).search;
        document.head.append(script);
    })"""
    with browser.new_context(base_url=local.address) as context:
        context.add_cookies([cookie])  # type: ignore[list-item]
        page = context.new_page()
        page.goto(f"/dashboard/tasks/{hostile}")
        answer = page.request.get(script["download_url"])
        assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''run.js"
        assert page.evaluate(load, script["download_url"]) == "refused"


def test_a_line_of_50_mb_is_shown_in_part(look: Open, local: Api) -> None:
    task_id = local.finished("long_line", chars=50_000_000)
    page = look(f"/dashboard/tasks/{task_id}")
    expect(page.get_by_text("after", exact=True)).to_be_visible()
    assert len(page.content()) < 5_000_000


def test_a_task_that_cannot_be_shown_is_an_error_in_its_own_place(
    open_server: Served, look: Open, local: Api
) -> None:
    damaged, sound = local.submit("ask"), local.submit("ask")
    for task_id in (damaged, sound):
        local.until(task_id, lambda task: task["state"] == "input_required")
    with closing(sqlite3.connect(open_server.deployment.folder / "tasks.db", timeout=30)) as store, store:
        statement = "UPDATE input_requests SET params_json = ? WHERE task_id = ?"
        store.execute(statement, ('{"message": 7}', damaged))
    try:
        page = look("/dashboard/tasks?state=input_required")
        expect(page.locator(f"#row-{sound}")).to_contain_text("Your name?")
        expect(page.locator(f"#row-{damaged}")).to_contain_text("cannot be shown")
        page.goto("/")
        expect(page.locator(f"#asks-{sound}")).to_contain_text("Your name?")
        expect(page.locator(f"#asks-{damaged}")).to_contain_text("cannot be shown")
        for path in (f"/dashboard/tasks/{damaged}", "/dashboard/workers", "/dashboard/queues"):
            assert page.request.get(path).status == 200
    finally:
        for task_id in (damaged, sound):
            local.post(f"/tasks/{task_id}/cancel")
