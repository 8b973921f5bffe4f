"""Being the workers of Dramatiq or Celery: their own commands, one for each queue."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from ...errors import EngineError

if TYPE_CHECKING:
    from ...config import Settings
    from ...config.engines.broker import BrokerSettings


@contextmanager
def needing(engine: str) -> Iterator[None]:
    """For the imports of an engine's library. Raises EngineError where it is not installed."""
    try:
        yield
    except ImportError as error:
        reason = f"{error}; install it: pip install 'backburner[{engine}]'"
        raise EngineError(engine=engine, reason=reason) from error


def processes_of(settings: Settings, group: BrokerSettings) -> dict[str, int]:
    """How many worker processes each queue of an engine gets here: as it has workers, up to the setting."""
    workers = {queue: settings.queues[queue].workers for queue in settings.queues_of(group.group)}
    return {queue: min(count, group.max_processes) for queue, count in workers.items() if count}


def run_side_by_side(commands: Sequence[list[str]], variables: Mapping[str, str]) -> NoReturn:
    """Be these commands until they end, with these variables. A single one takes the place of this process.

    Several run beside each other: what stops this one (Ctrl-C, SIGTERM) is passed on to each as SIGTERM, and
    where one ends, the others are told to end as well.
    """
    environment = {**os.environ, **variables}
    if len(commands) == 1:
        os.execve(commands[0][0], commands[0], environment)
    started: list[subprocess.Popen[bytes]] = []
    stopping = False

    def stop(*_: Any) -> None:
        nonlocal stopping
        stopping = True
        for process in started:
            if process.poll() is None:
                process.terminate()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for command in commands:
            # In a group of its own, since Ctrl-C would reach it by the terminal as well as by us.
            started.append(subprocess.Popen(command, env=environment, process_group=0))
        if stopping:
            stop()
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        if not stopping:  # else all were told, and a second time would mean: at once
            stop()
        codes = [process.wait() for process in started]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    sys.exit(next((code if code > 0 else 1 for code in codes if code), 0))
