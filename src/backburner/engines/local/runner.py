"""The runner: the process in which a worker executes tools, one after another."""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from collections.abc import Sequence
from contextvars import copy_context
from typing import Any

from ... import tracing
from ...errors import UnknownTool
from ...execution import Assignment, Execution
from ...task import TaskError
from ...tools import Registry
from .log_capture import LogCapture
from .runner_state import RunnerState
from .supervisor_link import AttemptChannel, SupervisorLink
from .wire import MessageReader

_libc = ctypes.CDLL(None)


def serve(
    work: socket.socket,
    steer: socket.socket,
    tools: Registry,
    *,
    files: Sequence[str] | None = None,
    warning: str = "",
) -> None:
    """Run what comes over `work` until it ends; `steer` brings cancels and replies meanwhile.

    `files` are those of the app, if this process has imported it for itself. The first task's log gets
    the `warning`.
    """
    state: RunnerState | None = None
    supervisor = SupervisorLink(work, steer)
    capture = LogCapture(supervisor, tools.is_private_record)

    def keep_state() -> None:
        nonlocal state
        capture.replace_consoles()  # the lifespan may have set up its own
        state = RunnerState(with_life=state is not None)

    execution = Execution(tools.lifespan, keep_state)
    supervisor.listen(execution)
    capture.begin()
    tracing.provide(in_runner=True)
    keep_state()
    supervisor.send("hello", {} if files is None else {"files": files})
    for kind, body in MessageReader(_Work(work, execution)).each():
        if kind == "run":
            assignment = Assignment.from_json(body)
            channel = supervisor.channel(assignment.task_id, assignment.attempt)
            if warning:
                channel.log("warning", warning)
                warning = ""
            outcome = copy_context().run(_run, assignment, tools, execution, channel)
            _flush()
            outcome["spent"] = not (state and state.restore())
            if outcome["spent"] or assignment.last or outcome["kind"] == "cancelled":
                execution.end_life()  # its process is killed as soon as this is heard
                _flush()
            tracing.flush()
            channel.finish(outcome)
    for fd in (1, 2):
        os.dup2(0, fd)  # nobody reads what is printed from now on
    execution.end_life()


class _Work:
    """The socket that work comes from; what the app has begun goes on while there is none."""

    def __init__(self, work: socket.socket, execution: Execution) -> None:
        self._work = work
        self._execution = execution

    def recv(self, size: int) -> bytes:
        self._execution.go_on_until_readable(self._work)
        return self._work.recv(size)


def _run(
    assignment: Assignment, tools: Registry, execution: Execution, channel: AttemptChannel
) -> dict[str, Any]:
    try:
        spec = tools.get(assignment.tool_name)
    except UnknownTool as error:
        return {"kind": "failed", "error": TaskError("unknown_tool", str(error)).to_dict(), "metrics": {}}
    return execution.run(spec, assignment, channel)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # the tool closed it, or put it away
            continue
    _libc.fflush(None)
