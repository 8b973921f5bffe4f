"""How a worker process of a queue outside runs tasks: through a supervisor of its own, in a child process."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import sys
import threading
from pathlib import Path

from ...config import Settings
from ...errors import EngineError
from ..local.import_path import environment

_END_S = 10.0


class TaskFeed:
    """Runs one task at a time, under all its limits. Threads that come meanwhile wait for their turn.

    The child outlives a worker process that is killed: it brings the task to its end, and leaves.
    """

    def __init__(self, settings: Settings, data_dir: Path, queue: str, *, target: str = "") -> None:
        """The app of `target` is imported before the first task comes."""
        self._config = {
            "settings": dataclasses.replace(settings, data_dir=str(data_dir)).to_json(),
            "queue": queue,
            "target": target,
        }
        self._engine = settings.engine_of(queue)
        self._turn = threading.Lock()
        self._child: subprocess.Popen[str] | None = None

    def run(self, task_id: str) -> bool:
        """Run the next attempt of a task, and return when it is over.

        False when the task does not wait for a worker: another has it, it is over, or a limit holds it.
        Raises EngineError when the child fails; the task is safe, and may be sent again.
        """
        with self._turn:
            child = self._child = self._child or self._start()
            assert child.stdin is not None, "it is a pipe"
            assert child.stdout is not None, "it is a pipe"
            answer = ""
            with contextlib.suppress(BrokenPipeError):
                child.stdin.write(f"{task_id}\n")
                child.stdin.flush()
                answer = child.stdout.readline()
            if not answer:
                self._child = None
                code = child.wait()
                reason = (
                    f"the supervisor that was to run {task_id} ended with {code}; its worker's log says why"
                )
                raise EngineError(engine=self._engine, reason=reason)
            return bool(json.loads(answer)["ran"])

    def close(self) -> None:
        """Let the child go; it ends when it has nothing under way."""
        child, self._child = self._child, None
        if child is not None:
            for pipe in (child.stdin, child.stdout):
                with contextlib.suppress(OSError):
                    assert pipe is not None, "it is a pipe"
                    pipe.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_END_S)

    def _start(self) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "backburner.fed"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # what the worker is told by a terminal is not meant for it
            env=environment(),
        )
        assert child.stdin is not None, "it is a pipe"
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(json.dumps(self._config) + "\n")
            child.stdin.flush()
        return child
