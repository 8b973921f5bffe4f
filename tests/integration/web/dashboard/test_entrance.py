"""Coming in to the dashboard, and going out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Page, expect

from tests.integration.web.conftest import Served
from tests.integration.web.dashboard.conftest import Open, new_link


def test_a_link_opens_the_dashboard_once(
    open_server: Served, windows: Callable[..., tuple[Any, Page]]
) -> None:
    link = new_link(open_server)
    _, page = windows(open_server.address)
    page.goto(link)
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    again = httpx2.get(link)
    assert again.status_code == 410
    assert "set-cookie" not in again.headers


def test_a_link_that_one_server_has_taken_opens_no_other_of_its_store(open_server: Served) -> None:
    with open_server.deployment.http() as other:
        path = new_link(open_server).removeprefix(open_server.address)
        assert httpx2.get(other.address + path).status_code == 303
        for address in (open_server.address, other.address):
            assert httpx2.get(address + path).status_code == 410


def test_a_copy_of_the_cookie_is_worth_nothing_after_sign_out(
    look_as: Open, guarded: str, open_server: Served
) -> None:
    page = look_as("carol")
    (kept,) = page.context.cookies()
    signed_in_by_link = httpx2.get(new_link(open_server)).cookies
    for address, copied in (
        (guarded, {kept["name"]: kept["value"]}),
        (open_server.address, signed_in_by_link),
    ):
        with httpx2.Client(base_url=address, cookies=copied) as browser:
            assert browser.get("/").status_code == 200
            assert httpx2.post(f"{address}/dashboard/sign-out", cookies=copied).status_code == 303
            assert browser.get("/").status_code == 303
    assert httpx2.get(f"{guarded}/api/v1/me", cookies={kept["name"]: kept["value"]}).status_code == 401


def test_without_a_link_there_is_no_cookie_and_no_page(open_address: str) -> None:
    answer = httpx2.get(f"{open_address}/dashboard/tasks", params={"state": "failed"})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/dashboard/sign-in?next=%2Fdashboard%2Ftasks%3Fstate%3Dfailed"
    assert "set-cookie" not in answer.headers
    shown = httpx2.get(open_address, follow_redirects=True)
    assert "backburner dashboard" in shown.text
    assert "set-cookie" not in shown.headers


@pytest.mark.parametrize("link", ["x", "ImEi.avzuiQ.2OgHhdZDD4S8oygm35dqSiyTdmM", "%00", "a" * 4000])
def test_a_link_that_is_none_opens_nothing(open_address: str, link: str) -> None:
    answer = httpx2.get(f"{open_address}/dashboard/open/{link}")
    assert answer.status_code == 410
    assert "set-cookie" not in answer.headers


def test_a_cookie_that_was_altered_is_none(open_address: str, cookie: dict[str, Any]) -> None:
    altered = cookie["value"][:-4] + "AAAA"
    answer = httpx2.get(open_address, cookies={cookie["name"]: altered})
    assert answer.status_code == 303


def test_a_token_opens_the_page_that_was_wanted(
    guarded: str, windows: Callable[..., tuple[Any, Page]]
) -> None:
    context, page = windows(guarded)
    page.goto("/?last=day")
    page.get_by_label("Token").fill("token-of-alices-screen")
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{guarded}/?last=day")
    expect(page.get_by_role("banner")).to_contain_text("read")
    (kept,) = context.cookies()
    assert kept["httpOnly"]
    assert kept["sameSite"] == "Lax"
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    page.goto("/")
    expect(page.get_by_label("Token")).to_be_visible()


def test_a_token_that_nobody_knows_is_refused(guarded: str) -> None:
    form = {"token": "guessed", "next": "/"}
    answer = httpx2.post(f"{guarded}/dashboard/sign-in", data=form)
    assert answer.status_code == 403
    assert "Unknown or expired token" in answer.text
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "wanted", ["//evil.example/", "https://evil.example/", "/\\evil.example", "x", "/\n//x"]
)
def test_signing_in_leads_to_no_other_site(guarded: str, wanted: str) -> None:
    form = {"token": "token-of-alice", "next": wanted}
    answer = httpx2.post(f"{guarded}/dashboard/sign-in", data=form)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")


def test_a_form_of_another_site_signs_nobody_in(guarded: str) -> None:
    form = {"token": "token-of-alice"}
    headers = {"Sec-Fetch-Site": "cross-site"}
    answer = httpx2.post(f"{guarded}/dashboard/sign-in", data=form, headers=headers)
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


def test_the_cookie_is_for_the_api_too_but_not_for_mcp(look_as: Open, guarded: str) -> None:
    page = look_as("alice")
    assert page.request.get("/api/v1/queues").status == 200
    assert page.request.post("/mcp", data={}).status == 401
    assert page.request.get("/metrics").status == 401


def test_every_page_says_what_it_may_load(guarded: str, look_as: Open) -> None:
    answer = look_as("alice").request.get("/")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert answer.headers["cache-control"] == "no-store"


def test_the_address_dashboard_leads_to_the_overview(guarded: str, look_as: Open) -> None:
    page = look_as("alice", "/dashboard")
    expect(page).to_have_url(f"{guarded}/")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()


def test_an_address_that_there_is_not_says_so(look: Open) -> None:
    page = look("/")
    assert page.request.get("/dashboard/nowhere").status == 404
    assert page.request.get("/dashboard/static/..%2fpages.py").status == 404
    assert page.request.get("/dashboard/static/none.js").status == 404


@pytest.mark.whole(but_first=2)
@pytest.mark.parametrize("token", ["alices-screen", "alice", "wall", "ops", "strange"])
def test_every_role_has_every_page(guarded: str, look_as: Open, token: str) -> None:
    page = look_as(token)
    for link in page.get_by_role("navigation", name="Pages").get_by_role("link").all():
        answer = page.request.get(link.get_attribute("href") or "")
        assert answer.status == 200, answer.url
    assert page.request.get("/dashboard/tools/count").status == 200
