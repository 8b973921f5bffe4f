"""Artifacts in a folder of their host, or in one that all hosts share."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ...core.files import make_private, open_beneath, remove_task_folder
from ...core.task import Artifact
from ...errors import ArtifactStorageError

#: The size of reads.
CHUNK = 1 << 20


class OwnFolder:
    """Artifacts in the folders of their tasks, on the host that ran them."""

    elsewhere = False

    def __init__(self, tasks: Path) -> None:
        self._tasks = tasks

    def keep(self, artifact: Artifact, source: BinaryIO) -> None:
        target = self._tasks / artifact.path
        folder = target.parent
        part = folder.with_name(f".{secrets.token_hex(8)}")
        try:
            make_private(part)
            try:
                self._copy(artifact, source, part / target.name)
                self._publish(artifact, part, folder)
            finally:
                shutil.rmtree(part, ignore_errors=True)
        except OSError as error:
            raise self._error(artifact, error) from error

    def _copy(self, artifact: Artifact, source: BinaryIO, target: Path) -> None:
        digest = hashlib.sha256()
        with target.open("xb") as out:
            for chunk in whole(artifact, source):
                digest.update(chunk)
                out.write(chunk)
            out.flush()
            os.fsync(out.fileno())
        check_hash(str(self._tasks), artifact, digest.hexdigest())
        target.chmod(0o400)

    def _publish(self, artifact: Artifact, part: Path, folder: Path) -> None:
        """Rename the folder of a new artifact. Never replaces one."""
        try:
            part.rename(folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            digest = hashlib.sha256()
            for chunk in self.chunks(artifact):
                digest.update(chunk)
            check_hash(str(self._tasks), artifact, digest.hexdigest())

    def _error(self, artifact: Artifact, error: OSError) -> ArtifactStorageError:
        return ArtifactStorageError(storage=str(self._tasks), reason=f"{artifact.name}: {error}")

    def has(self, artifact: Artifact) -> bool:
        """Return whether this host has the artifact's file."""
        try:
            self._open(artifact).close()
        except FileNotFoundError:
            return False
        return True

    def _open(self, artifact: Artifact) -> BinaryIO:
        """Open a stored file. Raises FileNotFoundError if it is missing or its size differs."""
        file = open_beneath(self._tasks, artifact.path)
        if os.fstat(file.fileno()).st_size != artifact.size_bytes:
            file.close()
            raise FileNotFoundError(errno.ENOENT, "The file has changed since it was stored", artifact.name)
        return file

    def chunks(self, artifact: Artifact, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        left = artifact.size_bytes if length is None else length
        with self._open(artifact) as file:
            file.seek(offset)
            while left > 0 and (chunk := file.read(min(left, CHUNK))):
                left -= len(chunk)
                yield chunk

    def read(self, artifact: Artifact, offset: int = 0, length: int | None = None) -> bytes:
        return b"".join(self.chunks(artifact, offset, length))

    def link(self, artifact: Artifact, media_type: str, for_s: float) -> tuple[str, float] | None:
        return None

    def remove(self, task_id: str) -> None:
        remove_task_folder(self._tasks, task_id)

    def check(self) -> str:
        return str(self._tasks)


class SharedFolder(OwnFolder):
    """Artifacts in a folder that every host has mounted. Those in this host's own folder stay readable."""

    elsewhere = True

    def __init__(self, folder: Path, own: OwnFolder) -> None:
        super().__init__(folder)
        self._own = own

    def _error(self, artifact: Artifact, error: OSError) -> ArtifactStorageError:
        reason = f"{error}; check that the folder is mounted and writable"
        return ArtifactStorageError(storage=str(self._tasks), reason=reason)

    def _open(self, artifact: Artifact) -> BinaryIO:
        with contextlib.suppress(FileNotFoundError):
            return super()._open(artifact)
        return self._own._open(artifact)

    def remove(self, task_id: str) -> None:
        super().remove(task_id)
        self._own.remove(task_id)

    def check(self) -> str:
        try:
            make_private(self._tasks)
            if not os.access(self._tasks, os.R_OK | os.W_OK | os.X_OK):
                raise PermissionError(f"{self._tasks} is not writable")
        except OSError as error:
            raise ArtifactStorageError(storage=str(self._tasks), reason=error) from error
        return str(self._tasks)


def whole(artifact: Artifact, source: BinaryIO, size: int = CHUNK) -> Iterator[bytes]:
    """Yield the bytes of a file, at most one more than the artifact has."""
    left = artifact.size_bytes + 1
    while data := source.read(min(size, left)):
        left -= len(data)
        yield data


def check_hash(storage: str, artifact: Artifact, found: str) -> None:
    """Raise ArtifactStorageError if the file changed after its runner described it."""
    if found != artifact.sha256:
        reason = f"{artifact.name} changed while it was stored: its SHA-256 is {found}, not {artifact.sha256}"
        raise ArtifactStorageError(storage=storage, reason=reason)
