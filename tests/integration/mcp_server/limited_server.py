"""A tool under limits that writes a ledger of who runs when. It is started as servers.py is."""

from __future__ import annotations

import os
import time
from pathlib import Path

from backburner import Backburner
from backburner.core.retry import Retry
from tests.told_transport import serve_as_told

bb = Backburner("limited")


@bb.tool(
    max_running=2,
    concurrency_key=lambda inputs: inputs["repo"],
    retries=Retry(max_attempts=2, backoff_s=0, on=("*",)),
)
def index(repo: str, name: str, folder: str) -> str:
    """Note that it runs, wait until it may end, and note that it does not run any more."""
    write(folder, f"begin {name} {os.getpid()}")
    while not Path(folder, name).exists():
        time.sleep(0.01)
    write(folder, f"end {name} {os.getpid()}")
    return name


def write(folder: str, line: str) -> None:
    with Path(folder, "ledger").open("a") as ledger:
        ledger.write(f"{line}\n")


if __name__ == "__main__":
    serve_as_told(bb)
