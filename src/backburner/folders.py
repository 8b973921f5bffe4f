"""Where the files of tasks are: `tasks/<task_id>/` in the data folder, and nowhere else."""

from __future__ import annotations

import shutil
from pathlib import Path

from .errors import ArtifactNotFound
from .task import Artifact, is_task_id


def tasks_folder(data_dir: Path) -> Path:
    return data_dir / "tasks"


def artifact_file(data_dir: Path, artifact: Artifact) -> Path:
    """Where an artifact's bytes are. Raises ArtifactNotFound if that were outside the folder of all tasks."""
    tasks = tasks_folder(data_dir).resolve()
    path = (tasks / artifact.path).resolve()
    if not path.is_relative_to(tasks):
        raise ArtifactNotFound(artifact_id=artifact.artifact_id)
    return path


def remove_task_folder(tasks: Path, task_id: str) -> None:
    """Remove what a task has left; harmless where there is nothing."""
    if is_task_id(task_id):
        shutil.rmtree(tasks / task_id, ignore_errors=True)
