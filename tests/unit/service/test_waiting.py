"""Waiting for a task, blocking and with asyncio, woken from another process."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from backburner.core.lifecycle import State
from backburner.core.reports import Progressed, Started, Succeeded
from backburner.core.task import Progress
from backburner.errors import BackburnerError, TaskNotFound
from backburner.service.tasks import TaskService
from backburner.store import open_store
from backburner.store.protocol import Store
from tests.contracts.processes import Start, running
from tests.unit.service.conftest import Worker

LONG_S = 60.0


def finish_in_another_process(start: Start, url: str, task_id: str) -> str:
    store = open_store(url)
    start()
    lease = store.claim_task(task_id, "w1")
    assert lease is not None
    store.report(lease, Started())
    store.report(lease, Succeeded('"done elsewhere"'))
    store.close()
    return task_id


def test_a_wait_ends_when_another_process_finishes_the_task(service: TaskService, store_url: str) -> None:
    task_id = service.submit("add", {"a": 1}).task_id
    with ThreadPoolExecutor(1) as threads, running(finish_in_another_process, (store_url, task_id)):
        status = threads.submit(service.wait, task_id, LONG_S).result()
    assert (status.task.state, status.task.result) == (State.SUCCEEDED, "done elsewhere")


def test_an_async_wait_ends_when_another_process_finishes_the_task(
    service: TaskService, store_url: str
) -> None:
    async def wait() -> object:
        task_id = (await service.aio.submit("add", {"a": 1})).task_id
        waiters = [asyncio.create_task(service.aio.wait(task_id, LONG_S)) for _ in range(50)]
        with running(finish_in_another_process, (store_url, task_id)):
            return {status.task.result for status in await asyncio.gather(*waiters)}

    assert asyncio.run(wait()) == {"done elsewhere"}


def test_a_wait_takes_no_longer_than_asked(service: TaskService) -> None:
    task_id = service.submit("add", {"a": 1}).task_id
    before = time.monotonic()
    assert service.wait(task_id, 0.05).task.state is State.QUEUED
    assert asyncio.run(service.aio.wait(task_id, 0.05)).task.state is State.QUEUED
    assert time.monotonic() - before < LONG_S / 2


@pytest.mark.parametrize("timeout_s", [float("inf"), 10**400])
def test_a_wait_may_be_as_long_as_you_like(service: TaskService, worker: Worker, timeout_s: float) -> None:
    task_id = service.submit("add", {"a": 1}).task_id
    worker.finish(task_id, Succeeded("1"))
    assert service.wait(task_id, timeout_s).task.finished
    assert asyncio.run(service.aio.wait(task_id, timeout_s)).task.finished


def test_a_wait_can_be_for_something_else(service: TaskService, store: Store, worker: Worker) -> None:
    task_id = service.submit("add", {"a": 1}).task_id
    lease = worker.start(task_id)
    heard = threading.Event()

    def until_halfway(task: object) -> bool:
        heard.set()
        return getattr(task, "progress", None) is not None

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(service.wait, task_id, LONG_S, until=until_halfway)
        assert heard.wait(LONG_S)
        store.report(lease, Progressed(Progress(percent=50)))
        assert waiting.result().task.progress == Progress(percent=50)


def test_a_wait_ends_when_the_task_is_deleted(service: TaskService, worker: Worker) -> None:
    task_id = service.submit("add", {"a": 1}).task_id
    worker.finish(task_id, Succeeded("1"))
    heard = threading.Event()

    def never(task: object) -> bool:
        heard.set()
        return False

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(service.wait, task_id, LONG_S, until=never)
        assert heard.wait(LONG_S)
        service.delete(task_id)
        with pytest.raises(TaskNotFound):
            waiting.result()


def test_cancelling_an_async_wait_leaves_the_task_alone(service: TaskService) -> None:
    async def wait_and_stop() -> str:
        task_id = (await service.aio.submit("add", {"a": 1})).task_id
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(service.aio.wait(task_id, LONG_S), 0.05)
        return task_id

    assert service.status(asyncio.run(wait_and_stop())).task.state is State.QUEUED


def test_the_async_face_is_the_same_service(service: TaskService, worker: Worker) -> None:
    async def use() -> None:
        aio = service.aio
        task_id = (await aio.submit("add", {"a": 1}, external_id="e", idempotency_key="k")).task_id
        assert (await aio.status(task_id)).position == 1
        assert [task.task_id for task in (await aio.list()).tasks] == [task_id]
        found = await aio.find("e")
        assert found is not None
        assert found.task_id == task_id
        assert (await aio.cancel(task_id)).task.state is State.CANCELLED
        assert (await aio.retry(task_id)).task.state is State.QUEUED
        assert (await aio.logs(task_id)).lines == []
        await aio.run(worker.finish, task_id, Succeeded("3"))
        assert (await aio.answer_input(task_id, {})).task.state is State.SUCCEEDED
        assert (await aio.result(task_id)).task.result == 3
        await aio.delete(task_id)
        with pytest.raises(TaskNotFound):
            await aio.status(task_id)
        with pytest.raises(BackburnerError):
            await aio.wait(task_id, -1)

    asyncio.run(use())


def test_the_event_loop_goes_on_while_the_store_is_busy(service: TaskService) -> None:
    async def use() -> int:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        await asyncio.gather(*(service.aio.submit("add", {"a": n}) for n in range(50)))
        counting.cancel()
        return turns

    assert asyncio.run(use()) > 50


def test_a_store_on_this_host_is_looked_at_on_the_event_loop_until_a_look_took_long(
    service: TaskService,
) -> None:
    async def look() -> None:
        here = threading.get_ident()
        assert (await service.aio.look(threading.get_ident) == here) is not service.store.shared
        await service.aio.look(time.sleep, 0.1)  # as a disk that is busy
        assert await service.aio.look(threading.get_ident) != here

    asyncio.run(look())
