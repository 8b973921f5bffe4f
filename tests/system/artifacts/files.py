"""Files as a tool's process leaves them, and as they are kept."""

from __future__ import annotations

import hashlib
from pathlib import Path

from backburner.core.files import open_outgoing, outgoing_file, work_folder
from backburner.core.task import Artifact, new_task_id
from backburner.store.artifacts import ArtifactStore


def made_file(tasks: Path, data: bytes) -> Artifact:
    """A file in the folder of its attempt, that is not kept yet."""
    task_id, artifact_id = new_task_id(0), f"art_{0:032}"
    path = f"{task_id}/artifacts/{artifact_id}/data.bin"
    digest = hashlib.sha256(data).hexdigest()
    artifact = Artifact(artifact_id, task_id, 1, "data.bin", "file", len(data), digest, path, 0)
    file = outgoing(tasks, artifact)
    file.parent.mkdir(parents=True)
    file.write_bytes(data)
    return artifact


def outgoing(tasks: Path, artifact: Artifact) -> Path:
    return outgoing_file(work_folder(tasks, artifact.task_id, artifact.attempt), artifact.artifact_id)


def keep(place: ArtifactStore, tasks: Path, artifact: Artifact) -> None:
    """As a supervisor does."""
    with open_outgoing(tasks, artifact) as source:
        place.keep(artifact, source)
