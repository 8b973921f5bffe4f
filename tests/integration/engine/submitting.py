"""Submits tasks for as long as it lives, and notes each that was acknowledged; or serves those who do.

python -m tests.integration.engine.submitting FOLDER itself | serve PORT | ask PORT
"""

import asyncio
import os
import random
import sys
import threading
import time
from pathlib import Path

from backburner import Backburner
from backburner.client import BackburnerClient
from backburner.errors import QueueFull
from backburner.mcp.transport.run import run_http
from tests.contracts.engine_tools import contract_app

#: Few may wait, so that those who submit are held up by those who work, and all is over soon after the last.
WAITING = 100
AT_ONCE = 6
#: A hold of three seconds: what is stopped or cut off for longer is replaced.
QUICK = {"heartbeat_s": 0.3, "lease_grace_s": 3.0, "keeper_interval_s": 0.5, "cancel_grace_s": 0.2}


def make_app(folder: Path) -> Backburner:
    queues = {"cpu_standard": {"workers": 2, "max_length": WAITING}, "one_by_one": 1}
    return contract_app(store=f"sqlite:///{folder}/tasks.db", supervisor=QUICK, queues=queues)


class Notes:
    """The ids of acknowledged tasks, one in a line: written at once, so that no kill takes them back."""

    def __init__(self, folder: Path) -> None:
        self._ledger = folder / "ledger"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._file = os.open(folder / f"acknowledged-{os.getpid()}", flags, 0o600)

    def write(self, task_id: str) -> None:
        os.write(self._file, f"{task_id}\n".encode())

    def inputs(self) -> dict[str, object]:
        """No two are the same, so that a task that was submitted once and is there twice is seen."""
        kind = random.choice(["quick", "quick", "quick", "quick", "busy", "child", "checkpoint"])
        return {"kind": kind, "ledger": str(self._ledger), "seconds": 0.01 * random.random()}


def submit(folder: Path) -> None:
    app, notes = make_app(folder), Notes(folder)
    app.start()

    def one_after_another() -> None:
        while True:
            try:
                notes.write(app.service.submit("ledgered", notes.inputs()).task_id)
            except QueueFull:
                time.sleep(0.01)
            except BaseException:
                os._exit(1)  # nobody else has an end that is not a kill

    for _ in range(AT_ONCE):
        threading.Thread(target=one_after_another).start()


async def ask(folder: Path, port: str) -> None:
    notes = Notes(folder)
    async with BackburnerClient(f"http://127.0.0.1:{port}/mcp") as client:

        async def one_after_another() -> None:
            while True:
                handle = await client.start("ledgered", notes.inputs())
                if handle.task_id.startswith("tsk_"):
                    notes.write(handle.task_id)
                else:  # an error at once: the queue is full
                    await asyncio.sleep(0.01)

        await asyncio.gather(*(one_after_another() for _ in range(AT_ONCE)))


if __name__ == "__main__":
    place, how, *port = Path(sys.argv[1]), *sys.argv[2:]
    if how == "serve":
        run_http(make_app(place), "127.0.0.1", int(port[0]), log_level="error")
    elif how == "ask":
        asyncio.run(ask(place, port[0]))
    else:
        submit(place)
