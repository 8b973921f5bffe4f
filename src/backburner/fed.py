"""A supervisor with one worker, which runs the tasks that are named to it: `python -m backburner.fed`.

The first line on stdin is its configuration, and each further one the id of a task. On stdout it says of each
when it is over, and whether it could be claimed; all else goes to stderr. It leaves when stdin ends.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
from pathlib import Path
from typing import Any

from .config import Settings
from .engines.local.supervisor import Supervisor
from .engines.outside.named_tasks import NamedTasks, NamedWatch
from .log_lines import about, set_up
from .stores import open_store


def main() -> None:
    answers = os.dup(1)
    os.dup2(2, 1)
    first, unread = _first_line(0)
    config = json.loads(first)
    settings, queue = Settings.from_json(config["settings"]), config["queue"]
    set_up(settings.log)

    def tell(task_id: str, ran: bool) -> None:
        line = json.dumps({"task_id": task_id, "ran": ran}) + "\n"
        try:
            os.write(answers, line.encode())
        except BrokenPipeError:  # its worker is gone; the task is in the store
            logging.getLogger("backburner.fed").info(
                "nobody is left to hear of %s", task_id, extra=about(task_id)
            )

    store = open_store(settings.store, synchronous=settings.sqlite.synchronous)
    try:
        watch = NamedWatch(store.watch(steering=True), 0, queue, unread)
        source = NamedTasks(store, queue, settings.limits.of_running, watch, tell)
        supervisor_id = f"sup_{secrets.token_hex(4)}_{secrets.token_hex(4)}"
        supervisor = Supervisor(store, settings, Path(settings.data_dir), supervisor_id, source, watch)
        warm: list[Any] = [(config["target"], "")] if config["target"] else []
        supervisor.run(warm=warm)
    finally:
        store.close()


def _first_line(descriptor: int) -> tuple[bytes, bytes]:
    """The first line, and what was read behind it."""
    read = b""
    while b"\n" not in read and (chunk := os.read(descriptor, 1 << 16)):
        read += chunk
    line, _, rest = read.partition(b"\n")
    return line, rest


if __name__ == "__main__":
    main()
