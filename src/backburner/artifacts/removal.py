"""Removing the files of tasks that are gone, beside who sweeps."""

from __future__ import annotations

from collections import deque

from .place import ArtifactStore


class Removal:
    """What is to be removed from a storage, which may take its time or be away.

    What is forgotten with this process comes up once more when the records of these tasks are purged.
    """

    def __init__(self, artifacts: ArtifactStore) -> None:
        self._artifacts = artifacts
        self._task_ids: deque[str] = deque()

    def soon(self, task_id: str) -> None:
        self._task_ids.append(task_id)

    def catch_up(self) -> None:
        """Remove all of it. Raises ArtifactStorageError; then the rest has to wait for the next time."""
        while self._task_ids:
            self._artifacts.remove(self._task_ids[0])
            self._task_ids.popleft()
