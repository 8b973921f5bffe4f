"""The local engine beside a process pool that keeps nothing, and beside bare fsynced commits.

Dispatch is from the call of `submit` to the first line of the tool, with idle workers.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from rich.console import Console
from rich.table import Table

from .report import Results
from .targets import ENGINE, IDLE, RUNNER_MS, SUPERVISOR_MS

if TYPE_CHECKING:
    from backburner import Backburner

DISPATCHES = 300
TASKS = 6000
SUBMITTERS = 4
IDLE_S = 30
WORKERS = 2


def main() -> Results:
    results = Results()
    figures = results.figures[ENGINE] = {}
    with tempfile.TemporaryDirectory(prefix="backburner-bench-") as folder:
        table = Table("measured", "Backburner", "process pool", "bare SQLite", title="Local engine, fsync on")
        commits = bare_commits(Path(folder, "bare.db"))
        with pool() as submit, app(folder) as bb:
            pool_dispatch = [dispatch_ms(lambda: submit(time.time_ns).result()) for _ in range(DISPATCHES)]
            own_dispatch = [dispatch_ms(lambda: run(bb, "moment")) for _ in range(DISPATCHES)]
            table.add_row("dispatch p50, ms", _p(own_dispatch, 50), _p(pool_dispatch, 50))
            table.add_row("dispatch p95, ms", _p(own_dispatch, 95), _p(pool_dispatch, 95))
            waiting, together = throughput(bb)
            pool_text, bare_text = f"{pool_rate(submit):,.0f}", f"{commits:,.0f} commits"
            table.add_row("waiting no-ops worked off a second", f"{waiting:,.0f}", pool_text, bare_text)
            table.add_row("no-ops a second while others submit", f"{together:,.0f}")
            figures[RUNNER_MS] = recovery_ms(bb, kill_runner)
            figures[SUPERVISOR_MS] = recovery_ms(bb, kill_supervisor)
            run(bb, "noop")  # so that there is a warm runner
            supervisor = _supervisor(bb)
            figures[IDLE] = idle_cpu(supervisor)
            for name, figure in figures.items():
                table.add_row(name, f"{figure:.2f}")
            table.add_row("supervisor's memory, MB", f"{_own_mb(supervisor):.0f}")
            table.add_row("one idle runner's own memory, MB", f"{_own_mb(_runners(supervisor)[0]):.0f}")
        Console().print(table)
    return results


# -- what is measured ------------------------------------------------------------------------------


def run(bb: Backburner, tool: str) -> Any:
    task_id = bb.service.submit(tool, {}).task_id
    return bb.service.wait(task_id, 30).task.result


def dispatch_ms(call: Callable[[], int]) -> float:
    """From the call to the moment that the tool gives back."""
    before = time.time_ns()
    return (call() - before) / 1e6


def throughput(bb: Backburner) -> tuple[float, float]:
    """No-ops a second by two workers: those that wait already, and while a few threads submit them."""
    supervisor = _supervisor(bb)
    done = _finished(bb)
    supervisor.suspend()
    for thread in _submitting(bb):
        thread.join()
    supervisor.resume()
    waiting = _rate(bb, done + TASKS)
    _submitting(bb)
    return waiting, _rate(bb, done + 2 * TASKS)


def _submitting(bb: Backburner) -> list[threading.Thread]:
    def submit() -> None:
        for _ in range(TASKS // SUBMITTERS):
            bb.service.submit("noop", {})

    threads = [threading.Thread(target=submit) for _ in range(SUBMITTERS)]
    for thread in threads:
        thread.start()
    return threads


def _rate(bb: Backburner, finished: int) -> float:
    """Tasks a second from now until so many are finished."""
    started = time.perf_counter()
    while _finished(bb) < finished:
        time.sleep(0.02)
    return TASKS / (time.perf_counter() - started)


def pool_rate(submit: Callable[..., Any]) -> float:
    started = time.perf_counter()
    for future in [submit(int) for _ in range(TASKS)]:
        future.result()
    return TASKS / (time.perf_counter() - started)


def bare_commits(path: Path) -> float:
    """Single-row commits a second, each on disk."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE rows (row TEXT)")
    started = time.perf_counter()
    for _ in range(2000):
        connection.execute("INSERT INTO rows VALUES ('row')")
    rate = 2000 / (time.perf_counter() - started)
    connection.close()
    return rate


def recovery_ms(bb: Backburner, kill: Callable[[Backburner, str], None]) -> float:
    """From the kill of what runs a task to the first line of its next attempt; the median of five."""
    found = []
    for _ in range(5):
        task_id = bb.service.submit("until_cancelled", {}).task_id
        _logged(bb, task_id, 1)
        before = time.time_ns()
        kill(bb, task_id)
        found.append((int(_logged(bb, task_id, 2)) - before) / 1e6)
        bb.service.cancel(task_id)
        bb.service.wait(task_id, 30)
    return statistics.median(found)


def kill_runner(bb: Backburner, task_id: str) -> None:
    pid = bb.store.attempts(task_id)[-1].pid
    assert pid is not None, "the attempt has started"
    os.kill(pid, signal.SIGKILL)


def kill_supervisor(bb: Backburner, task_id: str) -> None:
    _supervisor(bb).kill()


def idle_cpu(process: psutil.Process) -> float:
    before = process.cpu_times()
    time.sleep(IDLE_S)
    after = process.cpu_times()
    return 100 * (after.user + after.system - before.user - before.system) / IDLE_S


# -- the parts -------------------------------------------------------------------------------------


@contextmanager
def app(folder: str) -> Iterator[Backburner]:
    os.environ["BENCHMARK_STORE"] = f"sqlite:///{folder}/tasks.db"
    from .engine_app import bb

    bb.start()
    for _ in range(2 * WORKERS):
        run(bb, "noop")
    try:
        yield bb
    finally:
        supervisor = _supervisor(bb)
        bb.close()
        supervisor.terminate()
        supervisor.wait(30)


@contextmanager
def pool() -> Iterator[Callable[..., Any]]:
    with ProcessPoolExecutor(WORKERS) as executor:
        for future in [executor.submit(int) for _ in range(100)]:
            future.result()
        yield executor.submit


def _finished(bb: Backburner) -> int:
    return sum(count for state, count in bb.store.count_states().items() if state == "succeeded")


def _logged(bb: Backburner, task_id: str, lines: int) -> str:
    """The text of that log line, as soon as it is there."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = bb.service.logs(task_id).lines
        if len(found) >= lines:
            return found[lines - 1].message
        time.sleep(0.002)
    raise TimeoutError(f"{task_id} did not run again")


def _supervisor(bb: Backburner) -> psutil.Process:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        text = (bb.data_dir / "supervisor.lock").read_text()
        if text and psutil.pid_exists(json.loads(text)["pid"]):
            return psutil.Process(json.loads(text)["pid"])
        time.sleep(0.01)
    raise TimeoutError("no supervisor")


def _runners(supervisor: psutil.Process) -> list[psutil.Process]:
    return [runner for zygote in supervisor.children() for runner in zygote.children()]


def _own_mb(process: psutil.Process) -> float:
    """What goes away with the process: memory that it shares with its zygote does not count."""
    return float(process.memory_full_info().uss) / 1024 / 1024


def _p(values: list[float], percent: int) -> str:
    return f"{statistics.quantiles(values, n=100)[percent - 1]:.2f}"


if __name__ == "__main__":
    main()
