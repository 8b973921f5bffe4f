"""Copying a data folder: every file is read back, and what a failure leaves can be taken back."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from .folders import make_private

#: What belongs to the processes of one host and not to the tasks: locks, sockets, their log.
_OF_PROCESSES = ("wake", "*.lock", "clock.json", "intake.key", "supervisor.*", ".*")
_TEMPORARY = ".being-copied"


@dataclass(frozen=True, slots=True)
class CopiedFiles:
    files: int = 0
    bytes: int = 0


class FolderCopy:
    """A copy of a data folder in another one. What it has made can be taken back."""

    def __init__(self, source: Path, target: Path) -> None:
        self._source, self._target = source, target
        self._made: list[Path] = []

    def run(self, progress: Callable[[str, int, int], object]) -> CopiedFiles:
        """Copy all but what belongs to processes. Nothing to do where both are one folder.

        Raises OSError, and FileExistsError for a file that is there and is another one.
        """
        if not self._source.is_dir() or _same(self._source, self._target):
            return CopiedFiles()
        entries = {path: self._target / path.relative_to(self._source) for path in _entries(self._source)}
        total = sum(path.stat().st_size for path in entries if _is_file(path))
        files = done = 0
        folders: dict[Path, Path] = {}
        for path, to in entries.items():
            if path.is_symlink() or _is_file(path):
                done += self._copy(path, to)
                files += 1
                progress("copying files, in bytes", done, total)
            elif path.is_dir() and not to.is_dir():
                self._make_folder(to)
                folders[path] = to
        for path, to in folders.items():  # last, for one may be closed to writing
            _like(path, to)
        return CopiedFiles(files, done)

    def take_back(self) -> None:
        """Remove what this copy has made, and nothing else."""
        for path in reversed(self._made):
            with contextlib.suppress(OSError):
                path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        self._made.clear()

    def _make_folder(self, folder: Path) -> None:
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        make_private(folder)
        self._made += reversed(missing)

    def _copy(self, path: Path, to: Path) -> int:
        """How many bytes it has. It gets its name when all of it is on disk and was read back."""
        self._make_folder(to.parent)
        if path.is_symlink():
            if not to.is_symlink():
                to.symlink_to(path.readlink())
                self._made.append(to)
            return 0
        if to.exists():
            if _digest(path) != _digest(to):
                raise FileExistsError(f"{to} is there already, and is not {path}")
            return to.stat().st_size
        temporary = to.with_name(f".{to.name[:200]}{_TEMPORARY}")
        self._made.append(temporary)
        shutil.copyfile(path, temporary)
        _like(path, temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        if _digest(path) != _digest(temporary):
            raise OSError(f"{temporary} came out as another file than {path}")
        temporary.rename(to)
        self._made[-1] = to
        return to.stat().st_size


def _entries(folder: Path) -> Iterator[Path]:
    """All below the folder, folders before what is in them, but for what belongs to processes."""
    for path in sorted(folder.iterdir()):
        if not any(fnmatchcase(path.name, pattern) for pattern in _OF_PROCESSES):
            yield path
            if path.is_dir() and not path.is_symlink():
                for inside, folders, files in os.walk(path):
                    yield from (Path(inside, name) for name in sorted([*folders, *files]))


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _like(path: Path, to: Path) -> None:
    """Give it the mode and the times of the other, and its owner where we may: tools may run as users."""
    shutil.copystat(path, to)
    found = path.stat()
    if os.geteuid() == 0:
        os.chown(to, found.st_uid, found.st_gid)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _same(one: Path, other: Path) -> bool:
    return other.exists() and one.samefile(other)
