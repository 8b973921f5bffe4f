"""Two stores whose settings name one data folder: who comes second is told, and does not wait in silence."""

from __future__ import annotations

import contextlib

import pytest

from backburner.cli.command import Exit
from tests import services
from tests.integration.cli.conftest import Lab, Worker


@pytest.fixture
def other(lab: Lab) -> list[str]:
    """Words for a store beside the lab's, with the same data folder."""
    lab.environment["BACKBURNER_DATA_DIR"] = f"{lab.folder}/data"
    return ["--store", f"sqlite:///{lab.folder}/other.db"]


def test_a_worker_on_another_store_is_refused_as_long_as_one_works_there(lab: Lab, other: list[str]) -> None:
    with contextlib.closing(Worker(lab)) as worker:
        refused = lab.run("worker", "lab.py", *other)
        assert refused.returncode == Exit.TROUBLE, refused.stderr
        for part in (f"{lab.folder}/data", f"pid {worker.process.pid}", lab.url, "set data_dir"):
            assert part in refused.stderr, refused.stderr
        assert lab.submit("add", a=1)
    with contextlib.closing(Worker(lab, *other)):
        pass


def test_a_task_of_another_store_is_kept_and_its_caller_is_told_why_it_waits(
    lab: Lab, other: list[str]
) -> None:
    with contextlib.closing(Worker(lab)):
        done = lab.run("call", "--detach", "add", "a=1", *other)
        task_id = done.stdout.strip()
        assert "is in use for another store" in done.stderr, done.stderr
        assert lab.json("show", task_id, *other)["state"] == "queued"
    with contextlib.closing(Worker(lab, *other)):
        assert services.wait_until(lambda: lab.json("show", task_id, *other)["state"] == "succeeded")


def test_the_same_store_by_another_name_is_no_other(lab: Lab, other: list[str]) -> None:
    (lab.folder / "elsewhere").symlink_to(lab.folder)
    with contextlib.closing(Worker(lab)) as worker:
        again = lab.run("worker", "lab.py", "--store", f"sqlite:///{lab.folder}/elsewhere/lab.db")
        assert f"is running for this store already: pid {worker.process.pid}" in again.stderr, again.stderr
