"""An app whose tools find out what they are kept from."""

from __future__ import annotations

import contextlib
import encodings.idna  # noqa: F401, needed for host names; other users may be unable to read Python itself
import os
import socket
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any

from backburner import Backburner, TaskContext

bb = Backburner("confined", store="sqlite://", queues={"one_by_one": 1})


def _attempt(function: Any, *arguments: Any) -> str:
    """What became of it, as text."""
    try:
        function(*arguments)
    except OSError as error:
        return type(error).__name__
    return "done"


@bb.tool(retries=0)
def pid() -> int:
    return os.getpid()


@bb.tool(retries=0)
def rights() -> dict[str, Any]:
    lines = Path("/proc/self/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


@bb.tool(retries=0)
def who(ctx: TaskContext) -> dict[str, Any]:
    child = subprocess.run(["id", "-u"], capture_output=True, text=True, check=True)
    return {
        "user": os.getresuid(),
        "groups": [os.getgid(), *os.getgroups()],
        "child": child.stdout.strip(),
        "home": str(Path.home()),
        "scratch": str(ctx.scratch),
        "scratch is its own": ctx.scratch.stat().st_uid == os.getuid(),
    }


@bb.tool(retries=0)
def read(path: str) -> str:
    return _attempt(Path(path).read_bytes)


@bb.tool(retries=0)
def write(path: str) -> str:
    return _attempt(Path(path).write_text, "written")


@bb.tool(retries=0)
def signal_it(pid: int) -> str:
    return _attempt(os.kill, pid, 0)


@bb.tool(retries=0)
def keep(ctx: TaskContext) -> str:
    """Use every place that a tool has for files; the path of the artifact in the folder of tasks."""
    (ctx.scratch / "mine").write_text("mine")
    with tempfile.NamedTemporaryFile("w+") as file:
        file.write("temporary")
    (ctx.scratch / "mine").rename(ctx.scratch / "yours")
    subprocess.run(["cp", str(ctx.scratch / "yours"), str(ctx.scratch / "theirs")], check=True)
    return ctx.artifact("theirs").path


@bb.tool(retries=0)
def keep_link(target: str, ctx: TaskContext) -> list[str]:
    """Keep an artifact, and try to rewrite it and to put a link to another file in its place."""
    file = ctx.scratch.parents[2] / ctx.artifact(b"kept", name="kept").path
    with contextlib.suppress(PermissionError):
        file.chmod(0o600)
    return [
        _attempt(file.write_bytes, b"lies"),
        _attempt(file.parent.rename, ctx.scratch / "elsewhere"),
        _attempt(file.unlink),
        _attempt(file.symlink_to, target),
    ]


@bb.tool(retries=1)
def keep_twice(ctx: TaskContext) -> str:
    path = ctx.artifact(b"kept", name=f"attempt {ctx.attempt}").path
    if ctx.attempt == 1:
        (ctx.scratch / "left").write_text("left")
        os._exit(1)
    return path


@bb.tool(retries=0)
def connect(port: int) -> str:
    return _attempt(socket.create_connection, ("127.0.0.1", port), 5)


@bb.tool(retries=0)
def talk_to_itself() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=server.accept).start()
        return _attempt(socket.create_connection, server.getsockname(), 5)
