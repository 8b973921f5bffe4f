"""A small file of open handles, so that a program that was restarted finds its tasks again."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class OpenHandle:
    """What must be known to take up a task again: where it is, how it is asked about, and what was seen."""

    task_id: str
    server: str
    tool_name: str
    speech: str
    seen: str = ""
    log_cursor: str | None = None


class HandleFile:
    """Open handles by task id. Every write is atomic; programs that share the file wait for each other."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()

    def handles(self) -> dict[str, OpenHandle]:
        return {task_id: OpenHandle(**entry) for task_id, entry in read_json(self.path).items()}

    def keep(self, handle: OpenHandle, *, synced: bool = True) -> None:
        self._change(lambda entries: entries.update({handle.task_id: asdict(handle)}), synced=synced)

    def forget(self, task_id: str) -> None:
        self._change(lambda entries: entries.pop(task_id, None), synced=True)

    def _change(self, change: Callable[[dict[str, Any]], Any], *, synced: bool) -> None:
        with locked(self.path):
            entries = read_json(self.path)
            change(entries)
            write_json(self.path, entries, synced=synced)


def read_json(path: Path) -> dict[str, Any]:
    """The object in the file; an empty one if there is no file."""
    try:
        return dict(json.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        return {}


def write_json(path: Path, value: dict[str, Any], *, synced: bool = True) -> None:
    """Replace the file in one step; only its owner can read it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(value, file, indent=1)
            file.flush()
            if synced:
                os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
