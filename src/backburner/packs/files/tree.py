"""What the file tools share: folders and their databases, and what goes wrong with a file."""

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

from backburner.config import state_folder

Database = Annotated[
    str | None,
    Field(description="The file to keep what is found in; by default one in the user's state folder"),
]
_SHOWN_PROBLEMS = 50
_LOOK_FOR_S = 0.02
_FILES_PER_SECOND = 100
_WORDS = {
    FileNotFoundError: "vanished while it was looked at",
    PermissionError: "no permission",
    UnicodeDecodeError: "not UTF-8 text",
}


def require_extra() -> None:
    """Raise ImportError, saying what to install, when a library of the extra `files` is absent."""
    for library in ("bs4", "markdown_it", "markdownify", "yaml"):
        if importlib.util.find_spec(library) is None:
            raise ImportError(f"This tool needs {library}: pip install 'backburner[files]'")


def shown(name: bytes | str | os.PathLike[str]) -> str:
    """A file name as text for JSON, logs and terminals: what is not printable is escaped."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


class Problems(list[dict[str, str]]):
    """Files that could not be used, and why. None of them ends the work."""

    def add(self, path: bytes | str | os.PathLike[str], reason: str | Exception) -> None:
        if isinstance(reason, Exception):
            reason = in_words(reason)
        self.append({"path": shown(path), "reason": reason})

    def summary(self) -> dict[str, Any]:
        """For a result: how many there are, and the first ones."""
        return {"problems_total": len(self), "problems": self[:_SHOWN_PROBLEMS]}


def in_words(error: Exception) -> str:
    """Why a file could not be used, without its path and without a traceback."""
    for kind, words in _WORDS.items():
        if isinstance(error, kind):
            return words
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__


def existing(path: str, kind: str = "file or folder") -> Path:
    """Return the absolute path of what is there. Raises FileNotFoundError."""
    found = Path(os.path.abspath(Path(path).expanduser()))  # noqa: PTH100  (symbolic links are kept)
    if not found.exists():
        raise FileNotFoundError(f"There is no {kind} {shown(found)}.")
    return found


def folder_at(path: str) -> Path:
    """The absolute path of an existing folder. Raises FileNotFoundError or NotADirectoryError."""
    folder = existing(path, "folder")
    if not folder.is_dir():
        raise NotADirectoryError(f"{shown(folder)} is not a folder.")
    return folder


def database_path(kind: str, folder: Path, chosen: str | None = None) -> Path:
    """Where the database of a folder is: where the caller says, else in the user's state folder."""
    if chosen:
        return Path(chosen).expanduser().absolute()
    name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    return state_folder(os.environ) / kind / f"{name}.db"


@contextmanager
def open_database(path: Path, schema: str) -> Iterator[sqlite3.Connection]:
    """A database for one writer. Raises BlockingIOError while another task writes to it."""
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
    as_long_as_looking: float, bytes_per_s: float, suffix: str = ""
) -> Callable[[Mapping[str, Any]], float]:
    """An estimate for tools with a `path`, from a look at the file or folder that takes 20 ms at most.

    A file takes so many times as long as it takes to look at one, and what it holds is worked off at that
    speed. Where there is no file to look at, it is the document's rule: one second for each hundred.
    """

    def estimate(inputs: Mapping[str, Any]) -> float:
        place = existing(inputs["path"])
        if not place.is_dir():
            return 0.1 + place.stat().st_size / bytes_per_s
        count, look_s, size = _look_at(place, suffix)
        if look_s is None:
            return 0.1 + count / _FILES_PER_SECOND
        return 0.1 + count * (look_s * as_long_as_looking + size / bytes_per_s)

    return estimate


def _look_at(folder: Path, suffix: str) -> tuple[float, float | None, float]:
    """How many files there are, how long it took to look at one, and how large one is.

    None is opened: closing a file takes away the locks that SQLite has on it in this process, and the
    store may be among them. Where it takes too long, it is extrapolated from the folders seen so far.
    """
    began = time.perf_counter()
    waiting, seen, count, regular, size = [str(folder)], 0, 0, 0, 0
    while waiting and time.perf_counter() < began + _LOOK_FOR_S:
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
