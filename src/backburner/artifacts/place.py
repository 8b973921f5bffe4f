"""The ArtifactStore protocol: the one door to the files that tasks have made, wherever these are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Protocol

from ..task import Artifact

#: So much is read at once.
CHUNK = 1 << 20


class ArtifactStore(Protocol):
    """Where artifacts are kept. Every verb may be called from many threads.

    A tool's process puts a file into the folder of its attempt; `keep` copies it to a place that no confined
    tool can reach. What is kept is immutable. Each verb may raise ArtifactStorageError. A read raises
    FileNotFoundError for a file that is gone.
    """

    @property
    def elsewhere(self) -> bool:
        """Whether the files are on a storage beside this host, which may be slow or away."""
        ...

    def keep(self, artifact: Artifact, source: BinaryIO) -> None:
        """Keep a copy of an open file: whole and with its hash when this returns, else not at all.

        Nothing is replaced: raises ArtifactStorageError where another file is kept under this id.
        """
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
