"""`webhooks`: what endpoints were not told, seen and sent again; and what doctor says of it."""

from __future__ import annotations

import contextlib

import pytest

from backburner import open_store
from backburner.core.reports import Started, Succeeded
from backburner.core.times import SystemClock
from tests.contracts.store.base import new_task
from tests.contracts.store.outbox import hooks
from tests.integration.cli.conftest import Lab

pytestmark = pytest.mark.slow


def test_what_was_given_up_is_listed_without_its_path_and_sent_again(lab: Lab) -> None:
    with contextlib.closing(open_store(lab.url)) as store:
        new = new_task(SystemClock(), owner="local", **hooks("succeeded"))
        store.submit(new)
        lease = store.claim_task(new.task_id, "w1")
        assert lease is not None
        store.report(lease, Started(), Succeeded("1"))
        (due,) = store.due_deliveries()
        store.not_delivered(due, "it answered 410", None)
    (listed,) = lab.json("webhooks", "ls")["deliveries"]
    assert (listed["webhook_id"], listed["task_id"]) == (due.delivery_id, new.task_id)
    assert (listed["endpoint"], listed["given_up"]) == ("https://lab.example", True)
    shown = lab.run("webhooks", "ls").stdout
    assert "it answered 410" in shown
    assert "key=1" not in shown
    (warning,) = [one for one in lab.json("doctor")["findings"] if one["check"] == "webhooks"]
    assert (warning["level"], "https://lab.example" in warning["message"]) == ("warning", True)
    assert lab.json("webhooks", "ls", "--owner", "bob")["deliveries"] == []
    assert lab.json("webhooks", "retry", "--owner", "bob")["retried"] == []
    assert "no webhook delivery msg_0" in lab.run("webhooks", "retry", "msg_0").stderr
    assert lab.json("webhooks", "retry")["retried"] == [due.delivery_id]
    assert lab.json("webhooks", "ls")["deliveries"][0]["given_up"] is False
    assert not [one for one in lab.json("doctor")["findings"] if one["check"] == "webhooks"]
