"""Where the files that tasks make are kept: a folder of their host, one that all share, or S3 storage."""

from __future__ import annotations

from pathlib import Path

from ..config import ArtifactSettings
from .folder import OwnFolder, SharedFolder
from .place import ArtifactStore
from .removal import Removal

__all__ = ["ArtifactStore", "Removal", "open_artifacts"]


def open_artifacts(settings: ArtifactSettings, tasks: Path) -> ArtifactStore:
    """The place that the settings name; `tasks` is where this host has the folders of tasks.

    Nothing is connected to before it is used. Raises ConfigError where an extra is missing.
    """
    own = OwnFolder(tasks)
    if settings.bucket:
        from .s3 import S3Storage

        return S3Storage(settings, own)
    return SharedFolder(Path(settings.folder), own) if settings.folder else own
