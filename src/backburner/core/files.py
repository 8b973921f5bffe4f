"""Files and folders of tasks: private folders, opening without following links, small shared JSON files."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

from .task import Artifact, is_task_id

_UNSAFE = re.compile(r"[^\w.()\- ]+")
_NOT_A_PLAIN_FILE = (errno.ELOOP, errno.ENOTDIR, errno.ENXIO)


def tasks_folder(data_dir: Path) -> Path:
    return data_dir / "tasks"


def work_folder(tasks: Path, task_id: str, attempt: int) -> Path:
    """The folder of one attempt: the part of the task's folder that a confined tool can use."""
    return tasks / task_id / f"work-{attempt}"


def scratch_folder(work: Path) -> Path:
    return work / "scratch"


def outgoing_folder(work: Path) -> Path:
    return work / "outgoing"


def outgoing_file(work: Path, artifact_id: str) -> Path:
    """Return the path at which an attempt's process leaves a file that becomes an artifact."""
    return outgoing_folder(work) / artifact_id


def open_outgoing(tasks: Path, artifact: Artifact) -> BinaryIO:
    """Open the file that is to be kept as this artifact. Raises FileNotFoundError, as `open_beneath`."""
    path = outgoing_file(work_folder(tasks, artifact.task_id, artifact.attempt), artifact.artifact_id)
    return open_beneath(tasks, str(path.relative_to(tasks)))


def open_beneath(folder: Path, path: str) -> BinaryIO:
    """Open a regular file below a folder for reading, without following a link in `path`.

    What is checked is what is read, whatever another process does to the path meanwhile. Raises
    FileNotFoundError for anything but a regular file, and OSError.
    """
    *parents, name = path.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in (*parents, name)):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        place = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
        for part in parents:
            place = _enter(place, part, flags | os.O_DIRECTORY)
        # Opening a pipe that no process writes to would block.
        file = _enter(place, name, flags | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in _NOT_A_PLAIN_FILE:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None
        raise
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return os.fdopen(file, "rb")


def _enter(place: int, name: str, flags: int) -> int:
    """Open what has this name in an open folder, which is closed."""
    try:
        return os.open(name, flags, dir_fd=place)
    finally:
        os.close(place)


def safe_file_name(name: str) -> str:
    """`name` as one plain path component, whatever a tool made of it."""
    plain = _UNSAFE.sub("_", Path(name).name).strip(". ")
    return plain.encode()[:200].decode(errors="ignore") or "file"


def as_attachment(name: str) -> str:
    """A `Content-Disposition` that has a browser save a tool's file, under a plain name, and not show it."""
    return f"attachment; filename*=UTF-8''{quote(safe_file_name(name), safe='')}"


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are not there, for their owner alone; others stay as they are.

    `Path.mkdir` would leave the ones above to the umask. Raises OSError.
    """
    try:
        folder.mkdir(0o700)
    except FileNotFoundError:
        if folder.parent.is_dir():  # a file system that has no room for it, such as /proc
            raise
        make_private(folder.parent)
        make_private(folder)
    except FileExistsError:
        if not folder.is_dir():
            raise


def remove_task_folder(tasks: Path, task_id: str) -> None:
    """Remove what a task has left; harmless where there is nothing."""
    if is_task_id(task_id):
        shutil.rmtree(tasks / task_id, ignore_errors=True)


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
