"""The ArtifactStore protocol: the one door to the files that tasks have made, wherever these are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from ..task import Artifact

#: So much is read at once.
CHUNK = 1 << 20


class ArtifactStore(Protocol):
    """Where artifacts are kept. Every verb may be called from many threads.

    A tool's process puts a file into its task's folder, on its host; `keep` makes an artifact of it. What is
    there is immutable. Each verb may raise ArtifactStorageError; who reads gets OSError for what is gone, and
    ArtifactNotFound for what would lead out of its task's folder.
    """

    @property
    def elsewhere(self) -> bool:
        """Whether `keep` has to take files away from their host, and so may take long."""
        ...

    def keep(self, artifact: Artifact) -> None:
        """Have it kept: whole and with its hash when this returns, and not at all when it raises."""
        ...

    def file(self, artifact: Artifact) -> Path | None:
        """The file of an artifact, if this host has it as one."""
        ...

    def chunks(self, artifact: Artifact, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Its bytes from the offset on: all, or at most so many."""
        ...

    def read(self, artifact: Artifact, offset: int = 0, length: int | None = None) -> bytes:
        """The same at once."""
        ...

    def link(self, artifact: Artifact, media_type: str, for_s: float) -> tuple[str, float] | None:
        """An address of the storage itself to download it from, and for how long it works; None without."""
        ...

    def remove(self, task_id: str) -> None:
        """Remove all that a task has left; harmless where there is nothing."""
        ...

    def check(self) -> str:
        """Make sure that it can be used, and say where it is."""
        ...
