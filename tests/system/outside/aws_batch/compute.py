"""Moto's server with computers: the command of a job of Batch is a process, as it would be in a container.

`serve` is the server. A job waits as RUNNABLE until its queue has room for
it, has the environment that its definition and its submission give, and ends as the command's exit code says.
What it wrote goes to its stream in CloudWatch. Who terminates it has SIGTERM sent, and SIGKILL later.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from moto.batch import models
from moto.server import main

#: How long a job has to end.
_GRACE_S = 30.0

_changed = threading.Condition()
_free: dict[str, int] = defaultdict(int)
_line: dict[str, deque[models.Job]] = defaultdict(deque)
_running: set[subprocess.Popen[bytes]] = set()


class ProcessJob(models.Job):
    """A job of moto's that runs here and not in Docker."""

    _process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        queue = self.job_queue.name
        with _changed:
            self.status = "RUNNABLE"
            line = _line[queue]
            line.append(self)
            _changed.wait_for(lambda: self.stop or (_free[queue] > 0 and line[0] is self))
            line.remove(self)
            _changed.notify_all()
            if self.stop:
                self._mark_stopped(success=False)
                return
            _free[queue] -= 1
            self.status = "STARTING"
        try:
            self._compute()
        finally:
            with _changed:
                _free[queue] += 1
                _changed.notify_all()

    def terminate(self, reason: str) -> None:
        with _changed:
            super().terminate(reason)
            _changed.notify_all()
            if self._process is not None:
                _end(self._process)

    def _compute(self) -> None:
        self.job_started_at = datetime.now()
        self._start_attempt()
        given = {each["name"]: each["value"] for each in self._get_container_property("environment", [])}
        command = self._get_container_property("command", [])
        with _changed:
            self._process = process = subprocess.Popen(
                command, env={**os.environ, **given}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            _running.add(process)
            self.status = "RUNNING"
            if self.stop:
                _end(process)
        output, _ = process.communicate()
        with _changed:
            _running.discard(process)
        self._keep(output.decode("utf-8", "replace").splitlines())
        self.exit_code = process.returncode
        self._mark_stopped(success=process.returncode == 0 and not self.stop)

    def _keep(self, lines: list[str]) -> None:
        now = int(time.time() * 1000)
        self.log_stream_name = self._stream_name
        self._log_backend.ensure_log_group(self._log_group)
        self._log_backend.ensure_log_stream(self._log_group, self.log_stream_name)
        events: list[dict[str, Any]] = [{"timestamp": now, "message": line} for line in lines]
        self._log_backend.put_log_events(self._log_group, self.log_stream_name, events)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    later = threading.Timer(_GRACE_S, process.kill)
    later.daemon = True
    later.start()


def serve(room: Mapping[str, int]) -> None:
    """Until SIGTERM. So many jobs of a queue run at once; of one that is not named, none ever does."""
    models.Job = ProcessJob  # type: ignore[misc]
    _free.update(room)
    try:
        main(sys.argv[1:])
    finally:
        for each in list(_running):
            each.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                each.wait(20)
            each.kill()
