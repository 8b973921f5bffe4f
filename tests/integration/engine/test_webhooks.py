"""Endpoints are told that a task is over: signed, at least once, whatever dies in between."""

from typing import Any

import pytest

from backburner.core.lifecycle import State
from backburner.errors import WebhookRefused
from backburner.service.webhooks import is_public
from tests.contracts.engine.base import eventually
from tests.integration.engine.conftest import StartLocal
from tests.integration.engine.local import Local, kill
from tests.services import ended, free_port
from tests.webhook_receiver import SECRET, receiving

pytestmark = pytest.mark.slow


def webhook(url: str = "", **given: Any) -> dict[str, Any]:
    return {"url": url, "secret": SECRET, "retry_s": 0.02, **given}


def told(local: Local, task_id: str) -> bool:
    return eventually(lambda: {"told", "not_told"} & {*local.trail(task_id)}) == {"told"}


def why_not(local: Local, task_id: str) -> str:
    """What the task's trail says of a delivery that was given up."""
    assert not told(local, task_id)
    return str(local.events(task_id)[-1].detail["error"])


def test_an_endpoint_that_fails_twice_is_told_in_the_end_with_the_same_id_and_a_right_signature(
    start_local: StartLocal,
) -> None:
    with receiving(500, 429, headers={"retry-after": "0"}) as receiver:
        local = start_local(webhook=webhook(receiver.url, result_bytes=100))
        task = local.run("add", a=1)
        assert told(local, task.task_id)
        ids, bodies = {one for one, _ in receiver.arrived}, [body for _, body in receiver.arrived]
        assert (len(receiver.arrived), len(ids), receiver.forged) == (3, 1, [])
        assert bodies[0] == bodies[1] == bodies[2]
        assert bodies[0]["type"] == "task.succeeded"
        data = bodies[0]["data"]
        assert (data["task_id"], data["tool"], data["owner"]) == (task.task_id, "add", "local")
        assert (data["result"], data["result_uri"]) == ({"sum": 3}, f"task://{task.task_id}/result")
        assert local.store.deliveries() == []


def test_only_the_ends_that_are_asked_for_are_told_and_a_refusal_is_not_tried_again(
    start_local: StartLocal,
) -> None:
    with receiving(400, 302, headers={"location": "http://127.0.0.1:1/"}) as receiver:
        local = start_local(webhook=webhook(receiver.url, states=["failed"]))
        well = local.run("add", a=1)
        tasks = [local.run("fail", message="no luck") for _ in range(2)]
        assert [task.state for task in tasks] == [State.FAILED, State.FAILED]
        errors = {why_not(local, task.task_id) for task in tasks}
        assert errors == {"it answered 400", "it answered 302; redirects are not followed"}
        assert {body["data"]["error"]["message"] for _, body in receiver.arrived} == {"no luck"}
        assert len(receiver.arrived) == 2
        assert not {"told", "not_told"} & {*local.trail(well.task_id)}
        assert [one.due_at for one in local.store.deliveries()] == [None, None]


def test_an_endpoint_that_is_down_when_the_task_ends_is_told_after_a_kill_of_the_supervisor(
    start_local: StartLocal,
) -> None:
    port = free_port()
    local = start_local(webhook=webhook(f"http://127.0.0.1:{port}/hook"))
    task = local.run("add", a=1)
    (waiting,) = eventually(lambda: [one for one in local.store.deliveries() if one.last_error])
    assert "refused" in waiting.last_error
    dead = local.supervisor()
    kill(*local.family())
    assert ended(dead)
    with receiving(port=port) as receiver:
        assert told(local, task.task_id), "another supervisor came for it alone"
        assert local.supervisor().pid != dead.pid
        assert [one for one, _ in receiver.arrived] == [waiting.delivery_id]


@pytest.mark.whole
def test_an_endpoint_that_hangs_keeps_no_other_from_being_told(start_local: StartLocal) -> None:
    with receiving(None) as hanging, receiving() as other:
        allowed = [other.url.split("/")[2]]
        own = {"allowed_hosts": allowed, "allow_http": True, "allow_private": True}
        local = start_local(webhook=webhook(hanging.url, **own))
        task_id = local.submit("add", {"webhook": {"url": other.url}}, a=1)
        eventually(lambda: local.trail(task_id).count("told") == 2, within_s=60)
        assert {body["data"]["task_id"] for _, body in (*other.arrived, *hanging.arrived)} == {task_id}
        assert (len(other.arrived), len(hanging.arrived)) == (1, 2)


def test_what_a_caller_may_name_is_the_operators_word_when_it_is_sent_too(start_local: StartLocal) -> None:
    with receiving() as receiver:
        local = start_local(webhook=webhook(allowed_hosts=["*"], allow_http=True))
        task = local.run("add", {"webhook": {"url": receiver.url, "states": ["succeeded"]}}, a=1)
        assert "private network" in why_not(local, task.task_id)
        assert receiver.arrived == []
        for given in ("nothing", {"url": 3}, {"url": receiver.url, "key": 1}, {"url": "file:///etc/passwd"}):
            with pytest.raises(WebhookRefused):
                local.submit("add", {"webhook": given}, a=1)
        with pytest.raises(WebhookRefused, match="states"):
            local.submit("add", {"webhook": {"url": receiver.url, "states": ["running"]}}, a=1)


def test_no_address_of_a_private_network_is_a_public_one_however_it_is_written() -> None:
    private = (
        *("127.0.0.1", "10.1.2.3", "169.254.169.254", "192.168.0.1", "100.64.0.1", "0.0.0.0", "224.0.0.1"),
        *("::1", "fe80::1%eth0", "fd00::1", "::ffff:127.0.0.1", "64:ff9b::a00:1", "2002:7f00:1::", "ff02::1"),
        *("fec0::1", "feff::1", "2606:4700::5efe:10.1.2.3", "2606:4700::200:5efe:8.8.8.8"),
    )
    assert [address for address in private if is_public(address)] == []
    public = ("8.8.8.8", "2606:4700::1111", "64:ff9b::808:808")
    assert [address for address in public if not is_public(address)] == []
