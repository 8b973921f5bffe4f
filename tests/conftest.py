"""Fixtures for all tests: services, warm processes, coroutine tests, and the check for leaked processes."""

import asyncio
import contextlib
import inspect
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import psutil
import pytest

from backburner.engines.local.processes import linux
from tests import services, warm
from tests.whole import left_out

# The tests start thousands of processes. Where no bytecode may be written, each would compile all that it
# imports, and Pydantic would have each look through every installed package for plug-ins.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"

pytest.register_assert_rewrite("tests.contracts")

hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") == "true" else "default")

# A shell's background job ignores Ctrl-C, and so would every process that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

#: Processes that are older than the run, or known to belong to others. They are not examined again.
_NOT_OF_THE_RUN = set(psutil.pids())

#: A process this old that does not name the run belongs to others. A younger one may be before its exec.
_ITSELF_AFTER_S = 5.0

#: So many quick tests take as long as a slow one.
_SLOW_WEIGHT = 15


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests to `make test-whole`, and begin with the files that have most."""
    if excess := set(left_out(items)):
        config.hook.pytest_deselected(items=[*excess])
        items[:] = [item for item in items if item not in excess]
    # The tests of a file run on one worker: a long file that begins last would have all others wait for it.
    weights = Counter({item.path: 0 for item in items})
    for item in items:
        weights[item.path] += _SLOW_WEIGHT if item.get_closest_marker("slow") else 1
    items.sort(key=lambda item: (-weights[item.path], item.path))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine, for which pytest has no way of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**arguments), 100))
    return True


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a PostgreSQL server for the whole run: BACKBURNER_TEST_POSTGRES_URL, or one of its own."""
    if given := os.environ.get("BACKBURNER_TEST_POSTGRES_URL"):
        yield given
        return
    with services.started(services.PostgresServer(durable=False)) as server:
        yield server.url


@pytest.fixture
def postgres_database(postgres_url: str) -> Iterator[str]:
    """The URL of a new, empty database."""
    with services.postgres_database(postgres_url) as url:
        yield url


@pytest.fixture
def postgres_server() -> Iterator[services.PostgresServer]:
    """A running server of the test's own, which it may stop, kill and start again."""
    with services.started(services.PostgresServer()) as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[services.RedisServer]:
    """A Redis server for the whole run. A test that empties or stops it has it to itself meanwhile."""
    with services.started(services.RedisServer()) as server:
        yield server


@pytest.fixture(scope="session")
def rabbit_server() -> Iterator[services.RabbitServer]:
    """A RabbitMQ server for the whole run, as above. It takes seconds to start."""
    with services.started(services.RabbitServer()) as server:
        yield server


@pytest.fixture
def wall_clock(tmp_path: Path) -> services.WallClock:
    """A wall clock that the test sets, for the processes that it gives its environment to."""
    return services.WallClock(tmp_path)


@pytest.fixture(scope="session")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The run's temporary directory, also put into the environment, where the run's processes inherit it."""
    directory = f"{tmp_path_factory.getbasetemp()}/"
    os.environ["TEST_RUN_DIRECTORY"] = directory
    return directory


@pytest.fixture(scope="session")
def warm_processes(run_directory: str) -> Iterator[None]:
    """The server behind `warm.PYTHON` and `warm.BACKBURNER`."""
    with warm.serving():
        yield


@pytest.fixture(autouse=True, scope="module")
def nothing_is_left_behind(run_directory: str) -> Iterator[None]:
    """Fail the module when a process or a non-daemon thread that its tests started outlives it by a minute.

    Left processes are killed, so that one failure does not become many.
    """
    threads_before = set(threading.enumerate())
    processes_before = _processes_of_the_run(run_directory)
    yield

    def threads() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if not thread.daemon} - threads_before

    def processes() -> set[psutil.Process]:
        return _processes_of_the_run(run_directory) - processes_before

    if services.wait_until(lambda: not threads() and not processes(), within=60):
        return
    left = [repr(thread) for thread in threads()]
    for process in processes():
        left.append(_describe(process))
        _kill(process)
    pytest.fail("the tests of this module left behind:\n" + "\n".join(left))


def _processes_of_the_run(directory: str) -> set[psutil.Process]:
    """Our children, and detached processes that name the run's directory in any place a process can.

    One place is not enough: a detached supervisor is nobody's child, and an MCP client starts its servers
    with a bare environment.
    """
    own, there = linux.children(), set(psutil.pids())
    _NOT_OF_THE_RUN.intersection_update(there)
    found: set[psutil.Process] = set()
    for pid in own | there - _NOT_OF_THE_RUN - {os.getpid()}:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if pid in own or _names(process, directory):
                found.add(process)
            elif time.time() - process.create_time() > _ITSELF_AFTER_S:
                _NOT_OF_THE_RUN.add(pid)
    return {process for process in found if not _belongs_to_a_fixture(process)}


def _names(process: psutil.Process, directory: str) -> bool:
    variable = process.environ().get("TEST_RUN_DIRECTORY", "")
    return any(directory in place for place in (*process.cmdline(), f"{process.cwd()}/", variable))


def _belongs_to_a_fixture(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return not services.running.isdisjoint({process.pid, *(parent.pid for parent in process.parents())})
    return False


def _describe(process: psutil.Process) -> str:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return f"process {process.pid}, which ended and was never waited for"
        return f"process {process.pid}: {' '.join(process.cmdline())}"
    except psutil.Error:
        return f"process {process.pid}"


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
        process.wait(5)
    except psutil.Error:
        pass  # it ended by itself, or is not ours to end
