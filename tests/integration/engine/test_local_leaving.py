"""A supervisor leaves when it has nothing to do: no task may come just then and find nobody."""

import contextlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from backburner import Backburner
from backburner.core.lifecycle import State
from backburner.engines.local import SupervisorLock
from backburner.engines.local.submission import SOCKET
from tests.contracts.engine.base import eventually
from tests.contracts.engine_tools import contract_app
from tests.integration.engine.local import Client, settings


@pytest.fixture(autouse=True)
def those_who_leave_are_waited_for() -> Iterator[None]:
    """As their parents would be gone, if they were other processes than this one."""
    before = set(psutil.Process().children())
    yield
    psutil.wait_procs(set(psutil.Process().children()) - before, timeout=20)


def app_in(folder: Path) -> Backburner:
    return contract_app(**settings(folder, supervisor={"idle_exit_s": 0.2}))


def test_who_submits_and_goes_leaves_no_task_to_a_supervisor_that_has_just_left(tmp_path: Path) -> None:
    with contextlib.closing(app_in(tmp_path)) as app:
        lock = SupervisorLock(app.data_dir)
        held = lock.take()
        assert held is not None
        supervisor_id = lock.sign(held, os.getpid())
        assert supervisor_id is not None
        task_id = app.service.submit("add", {"a": 1}).task_id
        lock.leave(held, supervisor_id)
        os.close(held)
    watching = Client(app_in(tmp_path))
    with contextlib.closing(watching):
        assert watching.end(task_id).state is State.SUCCEEDED


def test_a_task_that_comes_while_the_supervisor_leaves_is_worked_on(tmp_path: Path) -> None:
    """Who submitted it waits for the lock as well, as the supervisor does once more, and goes at once."""
    with contextlib.closing(Client(app_in(tmp_path))) as watching:
        folder = watching.app.data_dir
        for _ in range(3):
            with contextlib.closing(app_in(tmp_path)) as app:
                app.start()
                eventually(lambda: not (folder / SOCKET).exists())  # it takes nothing in any more
                task_id = app.service.submit("add", {"a": 1}).task_id
            assert watching.end(task_id).state is State.SUCCEEDED


def test_of_those_who_only_look_at_once_none_is_taken_for_a_supervisor(tmp_path: Path) -> None:
    lock = SupervisorLock(tmp_path)

    def looks(_: int) -> set[bool]:
        return {lock.holder() is None for _ in range(500)}

    with ThreadPoolExecutor(8) as pool:
        assert set().union(*pool.map(looks, range(8))) == {True}
    held = lock.take()
    assert held is not None
    lock.sign(held, os.getpid())
    assert (lock.holder() or {})["pid"] == os.getpid()
    os.close(held)
