"""wksm_monitor_sync on 100,000 files, as a task, beside bare loops over the same tree.

The loops do the least that the job needs: `os.walk`, `os.stat`, and for the first sync a hash. Rounds
alternate, and the best of each counts, for the machine has other things to do.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from backburner import Backburner

FOLDERS, FILES_IN_EACH = 1_000, 100
ROUNDS = 3


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="backburner-bench-") as folder:
        tree = Path(folder, "tree")
        make_tree(tree)
        os.environ.update(BACKBURNER_STORE=f"sqlite:///{folder}/tasks.db", XDG_STATE_HOME=folder)
        from backburner.packs.files import bb

        try:
            sync(bb, tree, Path(folder, "warm.db"), recursive=False)  # so that there is a warm runner
            times: dict[str, list[float]] = {}
            for number in range(ROUNDS):
                database = Path(folder, f"{number}.db")
                work = {
                    "walk, stat, hash": partial(bare, tree, with_hash=True),
                    "first sync": partial(sync, bb, tree, database),
                    "walk, stat": partial(bare, tree, with_hash=False),
                    "second sync": partial(sync, bb, tree, database),
                }
                for name, run in work.items():
                    times.setdefault(name, []).append(seconds(run))
        finally:
            end(bb)
        best = {name: min(values) for name, values in times.items()}
        table = Table(
            "measured", "task, s", "bare loop, s", "ratio", "limit", title="100,000 files, warm cache"
        )
        for name, beside, limit in (
            ("first sync", "walk, stat, hash", 2),
            ("second sync", "walk, stat", 1.3),
        ):
            ratio = best[name] / best[beside]
            table.add_row(name, f"{best[name]:.3f}", f"{best[beside]:.3f}", f"{ratio:.2f}", f"{limit}")
        Console().print(table)


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def make_tree(root: Path) -> None:
    """Files of 0.2 to 8 kB, a hundred in each folder, all different."""
    chance = random.Random(1)
    data = chance.randbytes(1 << 16)
    for number in range(FOLDERS):
        folder = root / str(number % 10) / str(number)
        folder.mkdir(parents=True)
        for file in range(FILES_IN_EACH):
            content = f"{number} {file} ".encode() + data[file : file + chance.randrange(200, 8_000)]
            (folder / f"file-{file}.txt").write_bytes(content)


def bare(tree: Path, *, with_hash: bool) -> None:
    for folder, _, files in os.walk(tree):
        for name in files:
            path = os.path.join(folder, name)  # noqa: PTH118  (as a bare loop would)
            os.stat(path)  # noqa: PTH116
            if with_hash:
                with open(path, "rb") as file:  # noqa: PTH123
                    blake2b(file.read(), digest_size=16).hexdigest()


def sync(bb: Backburner, tree: Path, database: Path, *, recursive: bool = True) -> None:
    inputs = {"path": str(tree), "recursive": recursive, "database": str(database)}
    task = bb.service.wait(bb.service.submit("wksm_monitor_sync", inputs).task_id, 120).task
    if task.error is not None:
        raise RuntimeError(task.error.message)


def end(bb: Backburner) -> None:
    """Close the app, and end its supervisor, which would stay for a while."""
    from backburner.engines.local import SupervisorLock

    lock = SupervisorLock(bb.data_dir)
    pid = (lock.holder() or {}).get("pid")
    bb.close()
    if isinstance(pid, int):
        os.kill(pid, signal.SIGTERM)
        while lock.holder() is not None:
            time.sleep(0.02)
