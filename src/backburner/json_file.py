"""Small files that programs share, of JSON mostly: replaced in one step, behind a lock, private."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .folders import make_private


def read_json(path: Path) -> dict[str, Any]:
    """The object in the file; an empty one if there is no file."""
    try:
        return dict(json.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        return {}


def write_json(path: Path, value: dict[str, Any], *, synced: bool = True) -> None:
    """Replace the file in one step; only its owner can read it."""
    write_private(path, json.dumps(value, indent=1), synced=synced)


def write_private(path: Path, text: str, *, synced: bool = True) -> None:
    """As `write_json`, of any text."""
    make_private(path.parent)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            if synced:
                os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    make_private(path.parent)
    descriptor = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
