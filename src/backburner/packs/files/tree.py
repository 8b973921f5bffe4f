"""What the file tools share: folders and their databases, and what goes wrong with a file."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median
from typing import Annotated, Any

from pydantic import Field

from backburner.config import state_folder

Database = Annotated[
    str | None,
    Field(description="The file to keep what is found in; by default one in the user's state folder"),
]
_SHOWN_PROBLEMS = 50
_COUNT_FOR_S = _READ_FOR_S = 0.02
_SAMPLES, _SAMPLES_OF_A_FOLDER, _SAMPLE_BYTES = 20, 2, 1 << 16
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


def folder_at(path: str) -> Path:
    """The absolute path of an existing folder. Raises FileNotFoundError or NotADirectoryError."""
    folder = Path(os.path.abspath(Path(path).expanduser()))  # noqa: PTH100  (symbolic links are kept)
    if not folder.exists():
        raise FileNotFoundError(f"There is no folder {shown(folder)}.")
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


def estimate_files(as_long_as_reading: float, suffix: str = "") -> Callable[[Mapping[str, Any]], float]:
    """An estimate for tools with a `path` that take so many times as long as it takes to read the files.

    It looks at the folder, for 40 ms at most: how many files there are, and how quickly a few of them are
    read. Where none can be read, it is the document's rule: one second for each hundred files.
    """

    def estimate(inputs: Mapping[str, Any]) -> float:
        count, some = _roughly_count(folder_at(inputs["path"]), suffix)
        reading_s = _seconds_to_read(some)
        one_s = 1 / _FILES_PER_SECOND if reading_s is None else reading_s * as_long_as_reading
        return 0.1 + count * one_s

    return estimate


def _roughly_count(folder: Path, suffix: str) -> tuple[float, list[str]]:
    """How many files there are, and a few of them.

    Where counting takes too long, it is extrapolated from the folders seen so far.
    """
    deadline = time.monotonic() + _COUNT_FOR_S
    waiting, seen, count = [str(folder)], 0, 0
    some: list[str] = []
    while waiting and time.monotonic() < deadline:
        here: list[str] = []
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif entry.name.endswith(suffix):
                        count += 1
                        if len(here) < _SAMPLES_OF_A_FOLDER and entry.is_file(follow_symlinks=False):
                            here.append(entry.path)
        except OSError:
            continue
        seen += 1
        some += here
    return count * (seen + len(waiting)) / max(1, seen), some[:_SAMPLES]


def _seconds_to_read(files: Sequence[str]) -> float | None:
    """How long it takes to read one of them, as a rule; None if none could be read."""
    deadline = time.monotonic() + _READ_FOR_S
    took: list[float] = []
    for path in files:
        if took and time.monotonic() > deadline:
            break
        began = time.perf_counter()
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                size = os.fstat(fd).st_size
                hashlib.blake2b(os.read(fd, _SAMPLE_BYTES)).digest()
            finally:
                os.close(fd)
        except OSError:
            continue
        took.append((time.perf_counter() - began) * max(1.0, size / _SAMPLE_BYTES))
    return median(took) if took else None
