"""Files as a tool's process leaves them."""

from __future__ import annotations

import hashlib
from pathlib import Path

from backburner.task import Artifact
from backburner.task_ids import new_task_id


def made_file(tasks: Path, data: bytes) -> Artifact:
    """A file in its task's folder, that is not kept yet."""
    task_id, artifact_id = new_task_id(0), f"art_{0:032}"
    path = f"{task_id}/artifacts/{artifact_id}/data.bin"
    (tasks / path).parent.mkdir(parents=True)
    (tasks / path).write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    return Artifact(artifact_id, task_id, 1, "data.bin", "file", len(data), digest, path, 0)
