"""Artifacts in folders: that of their host, or one that all hosts share."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from ..errors import ArtifactNotFound, ArtifactStorageError
from ..folders import make_private, remove_task_folder
from ..task import Artifact
from .place import CHUNK


class OwnFolder:
    """On the host that ran the task, where its process put them: nothing is copied."""

    elsewhere = False

    def __init__(self, tasks: Path) -> None:
        self._tasks = tasks

    def keep(self, artifact: Artifact) -> None: ...

    def file(self, artifact: Artifact) -> Path | None:
        path = self.path(artifact)
        return path if path.is_file() else None

    def path(self, artifact: Artifact) -> Path:
        """Where an artifact's file is to be. Raises ArtifactNotFound if that were outside its task's folder.

        Also by a link: a tool must not have files of others given out.
        """
        tasks = self._tasks.resolve()
        path = (tasks / artifact.path).resolve()
        if not path.is_relative_to(tasks / artifact.task_id):
            raise ArtifactNotFound(artifact_id=artifact.artifact_id)
        return path

    def chunks(self, artifact: Artifact, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        left = artifact.size_bytes if length is None else length
        with self.path(artifact).open("rb") as file:
            file.seek(offset)
            while left > 0 and (chunk := file.read(min(left, CHUNK))):
                left -= len(chunk)
                yield chunk

    def read(self, artifact: Artifact, offset: int = 0, length: int | None = None) -> bytes:
        with self.path(artifact).open("rb") as file:
            file.seek(offset)
            return file.read(-1 if length is None else length)

    def link(self, artifact: Artifact, media_type: str, for_s: float) -> tuple[str, float] | None:
        return None

    def remove(self, task_id: str) -> None:
        remove_task_folder(self._tasks, task_id)

    def discard(self, artifact: Artifact) -> None:
        """Remove the file of an artifact that is kept elsewhere now."""
        path = self.path(artifact)
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # others of the task are still here
            path.parent.rmdir()
            path.parent.parent.rmdir()

    def check(self) -> str:
        return str(self._tasks)


class SharedFolder(OwnFolder):
    """In a folder that every host has mounted, each copied there when it is made.

    What was made before there was such a folder is still read from its host's own.
    """

    elsewhere = True

    def __init__(self, folder: Path, own: OwnFolder) -> None:
        super().__init__(folder)
        self._own = own

    def keep(self, artifact: Artifact) -> None:
        target = super().path(artifact)
        beside = target.with_name(f".{artifact.artifact_id}")
        digest = hashlib.sha256()
        try:
            make_private(target.parent)
            try:
                with beside.open("wb") as out:
                    for chunk in self._own.chunks(artifact):
                        digest.update(chunk)
                        out.write(chunk)
                    out.flush()
                    os.fsync(out.fileno())
                check_hash(str(self._tasks), artifact, digest.hexdigest())
                beside.chmod(0o400)
                beside.replace(target)
            except BaseException:
                beside.unlink(missing_ok=True)
                raise
        except OSError as error:
            reason = f"{error}; see that the folder is mounted and may be written"
            raise ArtifactStorageError(storage=str(self._tasks), reason=reason) from error
        self._own.discard(artifact)

    def path(self, artifact: Artifact) -> Path:
        shared = super().path(artifact)
        return shared if shared.is_file() else self._own.file(artifact) or shared

    def remove(self, task_id: str) -> None:
        super().remove(task_id)
        self._own.remove(task_id)

    def check(self) -> str:
        try:
            make_private(self._tasks)
            if not os.access(self._tasks, os.R_OK | os.W_OK | os.X_OK):
                raise PermissionError(f"{self._tasks} cannot be written")
        except OSError as error:
            raise ArtifactStorageError(storage=str(self._tasks), reason=error) from error
        return str(self._tasks)


def check_hash(storage: str, artifact: Artifact, found: str) -> None:
    """Raises ArtifactStorageError for a file that is no longer what its tool's process said it was."""
    if found != artifact.sha256:
        reason = f"{artifact.name} changed while it was kept: its SHA-256 is {found}, not {artifact.sha256}"
        raise ArtifactStorageError(storage=storage, reason=reason)
