"""An app whose tools do what no tool should: they fork, and they write to what is not theirs."""

import base64
import contextlib
import ctypes
import json
import os
import socket
import sys
import time
from collections.abc import Mapping
from typing import Any

from backburner import Backburner, TaskContext

app = Backburner("misbehaving", store="sqlite://", queues={"one_by_one": 1, "cpu_standard": 2})

#: What cannot be an input of a task, by names for it.
UNSTORABLE = {"NUL": "a\0b", "SURROGATE": "\ud800"}

_libc = ctypes.CDLL(None)


def misbehaving_app(**settings: Any) -> Backburner:
    """The app with these settings, which runners find in this module."""
    copy = Backburner("misbehaving", **{"queues": {"one_by_one": 1, "cpu_standard": 2}, **settings})
    copy.target = app.target
    for spec in app.tools:
        copy.add_tool(spec)
    return copy


def _wait_for_child(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@app.tool(retries=0)
def who(name: str) -> str:
    """Says the name, as any honest tool would."""
    return name


@app.tool(retries=0)
def fork_and_return(name: str, raw: bool = False) -> str:
    """Both sides of a fork return; the parent does so later, when its child is over."""
    pid = _libc.fork() if raw else os.fork()
    if pid == 0:
        return f"the child of {name}"
    _wait_for_child(pid)
    return name


@app.tool(retries=0)
async def fork_in_a_coroutine(name: str) -> str:
    pid = os.fork()
    if pid == 0:
        return f"the child of {name}"
    _wait_for_child(pid)
    return name


@app.tool(retries=0)
def fork_and_leave_behind(name: str) -> str:
    """The parent returns at once; its child does so a moment later."""
    if os.fork() == 0:
        time.sleep(0.3)
        return f"the child of {name}"
    return name


@app.tool(retries=0)
def fork_and_end(how: str) -> int:
    """The child ends in a way that ends processes; gives its exit code."""
    pid = os.fork()
    if pid == 0:
        if how == "raise":
            raise RuntimeError("the child of a tool")
        codes: dict[str, int | str] = {"ok": 0, "code": 7, "words": "no"}
        sys.exit(codes[how])
    return _wait_for_child(pid)


@app.tool(retries=0)
def fork_and_use_the_context(ctx: TaskContext) -> list[Any]:
    """What a child's context does: it cannot speak for the task."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        ctx.progress(percent=99)
        try:
            ctx.checkpoint({"by": "the child"})
        except Exception as error:
            os.write(writer, str(error).encode())
        return []
    os.close(writer)
    said = os.read(reader, 10_000).decode()
    return [_wait_for_child(pid), said]


def _speak(data: bytes) -> None:
    """Write to every socket of this process: one of them is its supervisor's."""
    for fd in range(3, 256):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as end:
            if end.family == socket.AF_UNIX:
                end.sendall(data)


@app.tool(retries=0)
def speak(data: str, ctx: TaskContext, times: int = 1, by_child: bool = False) -> str:
    """Say these bytes (base64) to the supervisor, past everything that would stop a tool from it."""
    words = base64.b64decode(data).replace(b"TASK", ctx.task_id.encode()) * times
    if by_child:
        pid = _libc.fork()
        if pid == 0:
            _speak(words)
            os._exit(0)
        _wait_for_child(pid)
    else:
        _speak(words)
    ctx.wait_cancelled(600)
    return "never"


@app.tool(retries=0)
def speak_and_return(data: str, ctx: TaskContext) -> str:
    """Say these bytes (base64) to the supervisor, and go on as if nothing had been."""
    _speak(base64.b64decode(data).replace(b"TASK", ctx.task_id.encode()))
    return "said"


@app.tool(retries=0)
def speak_for(task_id: str, attempt: int, ctx: TaskContext) -> str:
    """Give an outcome to another task."""
    last_word = {"kind": "succeeded", "result_json": '"stolen"', "metrics": {}, "changed": False}
    _speak(json.dumps(["done", {"task_id": task_id, "attempt": attempt, **last_word}]).encode() + b"\n")
    ctx.wait_cancelled(600)
    return "never"


@app.tool(retries=0)
def keep(kind: Any, name: Any, ctx: TaskContext) -> str:
    """An artifact with a name and a kind that may be none."""
    name = UNSTORABLE.get(name, name)
    return ctx.artifact(b"x", name=name, kind=kind).artifact_id


@app.tool(retries=0)
def keep_as(changes: dict[str, Any], ctx: TaskContext) -> str:
    """Register an artifact, past the context, with these fields changed."""
    fields = {
        "task_id": ctx.task_id,
        "attempt": ctx.attempt,
        "number": 1,
        "artifact_id": "art_" + 32 * "0",
        "name": "a.txt",
        "kind": "file",
        "size_bytes": 1,
        "sha256": 64 * "0",
        "path": f"{ctx.task_id}/artifacts/art_{32 * '0'}/a.txt",
        "created_at": 1,
    }
    changed = {key: UNSTORABLE.get(value, value) for key, value in changes.items()}
    _speak(json.dumps(["artifact", {**fields, **changed}]).encode() + b"\n")
    ctx.wait_cancelled(600)
    return "never"


def nested(levels: int) -> Any:
    value: Any = "deep"
    for _ in range(levels):
        value = [value]
    return value


@app.tool(retries=0)
def go_deep(levels: int, where: str, ctx: TaskContext) -> Any:
    """Say something that is nested very deeply."""
    if where == "progress":
        ctx.progress(percent=50, message="half", thing=nested(levels))
    elif where == "checkpoint":
        ctx.checkpoint(nested(levels))
    elif where == "question":
        ctx.ask("Really?", {"type": "object", "properties": {"a": {"default": nested(levels)}}})
    return nested(levels) if where == "result" else "done"


@app.tool(retries=2)
def hold(seconds: float, ctx: TaskContext) -> str:
    """Another one's honest work, which takes its time."""
    ctx.wait_cancelled(seconds)
    return "held"


@app.tool(retries=0)
def checkpoint_of(size: int, ctx: TaskContext) -> str:
    ctx.checkpoint("x" * size)
    return "kept"


@app.tool(retries=0)
def fail_at_length(size: int) -> Mapping[str, Any]:
    raise RuntimeError("x" * size)
