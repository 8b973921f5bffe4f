"""Acknowledged means on disk: seen from outside, in the system calls of all who take part."""

import asyncio
import contextlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from backburner.client import BackburnerClient
from backburner.core.lifecycle import State
from tests.contracts import engine_tools
from tests.contracts.engine.base import eventually
from tests.integration.engine import submitting
from tests.integration.engine.conftest import StartLocal
from tests.services import accepts, free_port, unavailable, wait_until

pytestmark = pytest.mark.slow

CALLS = "write,pwrite64,sendto,sendmsg,writev,fsync,fdatasync"
#: A page of the log of SQLite, whole.
TEXT_BYTES = "5000"
LINE = re.compile(r"(?P<pid>\d+) +(?:<\.\.\. )?(?P<call>\w+)(?P<rest>.*)")
ENDED = re.compile(r" = \d+$")


class Trace:
    """What strace saw, in order. A call that others came between has two lines: its beginning and its end."""

    def __init__(self, file: Path) -> None:
        self._lines = [found for line in file.read_text().splitlines() if (found := LINE.match(line))]

    def first(self, calls: str, *texts: str) -> int:
        """When the first of these calls with these texts began."""
        for number, line in enumerate(self._lines):
            if re.fullmatch(calls, line["call"]) and all(text in line["rest"] for text in texts):
                return number
        raise AssertionError(f"{calls} of {texts} was not seen")

    def synced(self, file: str, after: int, before: int) -> bool:
        """Whether that file was synced, from beginning to end between these two moments."""
        began: set[str] = set()
        for line in self._lines[after + 1 : before]:
            if line["call"] not in ("fsync", "fdatasync"):
                continue
            if f"{file}>" in line["rest"]:
                began.add(line["pid"])
            if line["pid"] in began and ENDED.search(line["rest"]):
                return True
        return False


@pytest.fixture
def strace(tmp_path: Path) -> list[str]:
    """The command; its trace is in `trace`."""
    program = shutil.which("strace")
    if program is None:
        unavailable("strace is not installed: `make services` as root")
    command = [
        program,
        "-f",
        "-y",
        "-q",
        "-I",
        "2",
        "-s",
        TEXT_BYTES,
        "-e",
        f"trace={CALLS}",
        "-o",
        f"{tmp_path}/trace",
    ]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        unavailable("strace may not look at other processes here")
    return command


def attached(*pids: int) -> bool:
    """Whether somebody traces every thread of these processes."""
    threads = [thread for pid in pids for thread in Path(f"/proc/{pid}/task").iterdir()]
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # one has just ended: look again
        return not any("TracerPid:\t0\n" in (thread / "status").read_text() for thread in threads)
    return False


@contextlib.contextmanager
def traced(strace: list[str], *pids: int, run: Sequence[str] = ()) -> Iterator[subprocess.Popen[str]]:
    """Trace these processes, and a program that strace itself starts."""
    looking_at = [word for pid in pids for word in ("-p", str(pid))]
    command = [*strace, *looking_at, *run]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as tracer:
        try:
            eventually(lambda: attached(*pids))
            yield tracer
        finally:
            tracer.terminate()


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize("supervisor", ["is there", "is not there"])
def test_a_task_is_on_disk_before_the_command_line_tells_its_id(
    start_local: StartLocal, strace: list[str], tmp_path: Path, supervisor: str
) -> None:
    local = start_local()
    if supervisor == "is not there":
        local.app.engine.stop()
        local.end_supervisor()
    store = f"sqlite:///{tmp_path}/tasks.db"
    target = f"{engine_tools.__file__}:app"
    place = ["-t", target, "-s", store]
    submit = [sys.executable, "-m", "backburner.cli", "call", "--detach", *place, "add", "a=1"]
    pids = [local.supervisor().pid] if supervisor == "is there" else []
    with traced(strace, *pids, run=submit) as tracer:
        assert tracer.stdout is not None
        task_id = tracer.stdout.readline().strip()
        assert local.end(task_id).state is State.SUCCEEDED
    trace = Trace(tmp_path / "trace")
    written = trace.first("pwrite64|write", "tasks.db-wal>", task_id)
    assert trace.synced("tasks.db-wal", written, trace.first("write", "(1<", task_id))


def test_tasks_are_on_disk_before_a_server_tells_their_ids(
    start_local: StartLocal, strace: list[str], tmp_path: Path
) -> None:
    """Also where several are submitted at once, and one sync is for all of them."""
    local, port = start_local(), str(free_port())
    with subprocess.Popen(
        [sys.executable, "-m", submitting.__name__, str(tmp_path), "serve", port]
    ) as server:
        try:
            assert wait_until(lambda: accepts(port)), "the server did not come up"
            with traced(strace, server.pid, local.supervisor().pid):
                task_ids = asyncio.run(started(f"http://127.0.0.1:{port}/mcp", 12))
        finally:
            server.terminate()
    trace = Trace(tmp_path / "trace")
    for task_id in task_ids:
        written = trace.first("pwrite64|write", "tasks.db-wal>", task_id)
        told = trace.first("sendto|sendmsg|write|writev", "taskId", task_id)
        assert trace.synced("tasks.db-wal", written, told)


async def started(url: str, count: int) -> list[str]:
    """The ids of so many tasks, all submitted at once, which are over."""
    async with BackburnerClient(url) as client:
        handles = await asyncio.gather(*(client.start("add", a=number) for number in range(count)))
        await asyncio.gather(*(handle.result() for handle in handles))
    return [handle.task_id for handle in handles]
