"""Artifact stores: a folder of the host, a shared folder, or S3."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from ...core.task import Artifact
from ...settings import ArtifactSettings
from .folder import OwnFolder, SharedFolder


class ArtifactReader(Protocol):
    """Reads the bytes of artifacts: from storage, or through the links of a remote server."""

    def chunks(self, artifact: Artifact, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Yield the bytes from the offset on, at most `length`."""
        ...

    def read(self, artifact: Artifact, offset: int = 0, length: int | None = None) -> bytes: ...


class ArtifactStore(ArtifactReader, Protocol):
    """Storage of artifacts, which are immutable. Thread-safe.

    A runner writes a file into the folder of its attempt; `keep` copies it out of the reach of tools. Each
    method may raise ArtifactStorageError. Reads raise FileNotFoundError for a missing file.
    """

    @property
    def elsewhere(self) -> bool:
        """Return whether the files are on remote storage, which may be slow or unavailable."""
        ...

    def keep(self, artifact: Artifact, source: BinaryIO) -> None:
        """Store a copy of an open file, atomically and with its hash checked.

        Raises ArtifactStorageError if another file is stored under this id.
        """
        ...

    def link(self, artifact: Artifact, media_type: str, for_s: float) -> tuple[str, float] | None:
        """Return a download URL of the storage itself and its lifetime; None if it has none."""
        ...

    def remove(self, task_id: str) -> None:
        """Remove all files of a task, if there are any."""
        ...

    def check(self) -> str:
        """Check that the storage works. Return its location."""
        ...


def open_artifacts(settings: ArtifactSettings, tasks: Path) -> ArtifactStore:
    """Return the artifact store of the settings; `tasks` is this host's folder of tasks.

    It connects on first use. Raises ConfigError if an extra is missing.
    """
    own = OwnFolder(tasks)
    if settings.bucket:
        from .s3 import S3Storage

        return S3Storage(settings, own)
    return SharedFolder(Path(settings.folder), own) if settings.folder else own


class Removal:
    """A queue of tasks whose files are to be removed from storage that may be slow or unavailable.

    Tasks that are lost with the process come up again when their records are purged.
    """

    def __init__(self, artifacts: ArtifactStore) -> None:
        self._artifacts = artifacts
        self._task_ids: deque[str] = deque()

    def soon(self, task_id: str) -> None:
        self._task_ids.append(task_id)

    def catch_up(self) -> None:
        """Remove all queued files. Raises ArtifactStorageError, and leaves the rest for the next call."""
        while self._task_ids:
            self._artifacts.remove(self._task_ids[0])
            self._task_ids.popleft()
