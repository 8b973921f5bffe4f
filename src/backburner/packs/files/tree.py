"""Folders, their databases, and problems with files: shared by the file tools."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ...settings import state_folder

Database = Annotated[
    str | None,
    Field(description="The database file; by default one in the user's state folder"),
]
_SHOWN_PROBLEMS = 50
_SCAN_S = 0.02
_FILES_PER_SECOND = 100
_WORDS = {
    FileNotFoundError: "vanished during the scan",
    PermissionError: "no permission",
    UnicodeDecodeError: "not UTF-8 text",
}


def require_extra() -> None:
    """Raise ImportError if a library of the extra `files` is missing."""
    for library in ("bs4", "markdown_it", "markdownify", "yaml"):
        if importlib.util.find_spec(library) is None:
            raise ImportError(f"This tool needs {library}: pip install 'backburner[files]'")


def shown(name: bytes | str | os.PathLike[str]) -> str:
    """Return a file name as text for JSON, logs and terminals, with unprintable characters escaped."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


class Problems(list[dict[str, str]]):
    """Files that could not be processed, with the reasons."""

    def add(self, path: bytes | str | os.PathLike[str], reason: str | Exception) -> None:
        if isinstance(reason, Exception):
            reason = describe(reason)
        self.append({"path": shown(path), "reason": reason})

    def summary(self) -> dict[str, Any]:
        """Return the count and the first problems, for a result."""
        return {"problems_total": len(self), "problems": self[:_SHOWN_PROBLEMS]}


def describe(error: Exception) -> str:
    """Return the reason of an error, without the path."""
    for kind, words in _WORDS.items():
        if isinstance(error, kind):
            return words
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__


def existing(path: str, kind: str = "file or folder") -> Path:
    """Return the absolute path of an existing file. Raises FileNotFoundError."""
    found = Path(os.path.abspath(Path(path).expanduser()))  # noqa: PTH100  (symbolic links are kept)
    if not found.exists():
        raise FileNotFoundError(f"There is no {kind} {shown(found)}.")
    return found


def folder_at(path: str) -> Path:
    """Return the absolute path of an existing folder. Raises FileNotFoundError or NotADirectoryError."""
    folder = existing(path, "folder")
    if not folder.is_dir():
        raise NotADirectoryError(f"{shown(folder)} is not a folder.")
    return folder


def database_path(kind: str, folder: Path, chosen: str | None = None) -> Path:
    """Return the database of a folder: the chosen file, or one in the user's state folder."""
    if chosen:
        return Path(chosen).expanduser().absolute()
    name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    return state_folder(os.environ) / kind / f"{name}.db"


@contextmanager
def open_database(path: Path, schema: str) -> Iterator[sqlite3.Connection]:
    """Open a database for one writer. Raises BlockingIOError while another task writes to it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.with_name(path.name + ".lock").open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(f"Another task is writing to {shown(path)}; try again later.") from None
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        with closing(sqlite3.connect(path)) as database:
            database.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;" + schema)
            yield database


def estimate_files(
    scan_factor: float, bytes_per_s: float, suffix: str = ""
) -> Callable[[Mapping[str, Any]], float]:
    """Return an estimate function for tools with a `path`, from a scan of at most 20 ms.

    Each file takes `scan_factor` times its scan time, and its bytes `bytes_per_s`. Without regular files it
    is one second for each hundred, as in the source document.
    """

    def estimate(inputs: Mapping[str, Any]) -> float:
        place = existing(inputs["path"])
        if not place.is_dir():
            return 0.1 + place.stat().st_size / bytes_per_s
        count, scan_s, size = _scan(place, suffix)
        if scan_s is None:
            return 0.1 + count / _FILES_PER_SECOND
        return 0.1 + count * (scan_s * scan_factor + size / bytes_per_s)

    return estimate


def _scan(folder: Path, suffix: str) -> tuple[float, float | None, float]:
    """Return the number of files, and the mean scan time and size of one, extrapolated after 20 ms.

    No file is opened: closing one would release the locks of SQLite on it in this process, and it may be the
    store.
    """
    began = time.perf_counter()
    waiting, seen, count, regular, size = [str(folder)], 0, 0, 0, 0
    while waiting and time.perf_counter() < began + _SCAN_S:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif entry.name.endswith(suffix):
                        count += 1
                        if entry.is_file(follow_symlinks=False):
                            regular += 1
                            size += entry.stat(follow_symlinks=False).st_size
        except OSError:
            continue
        seen += 1
    took = time.perf_counter() - began
    whole = count * (seen + len(waiting)) / max(1, seen)
    return (whole, took / regular, size / regular) if regular else (whole, None, 0.0)
