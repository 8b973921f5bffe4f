"""Where the files of tasks are: `tasks/<task_id>/` in the data folder; and folders for their owner alone."""

from __future__ import annotations

import shutil
from pathlib import Path

from .errors import ArtifactNotFound
from .task import Artifact, is_task_id


def tasks_folder(data_dir: Path) -> Path:
    return data_dir / "tasks"


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are not there, for their owner alone; others stay as they are.

    `Path.mkdir` would leave the ones above to the umask. Raises OSError.
    """
    try:
        folder.mkdir(0o700)
    except FileNotFoundError:
        make_private(folder.parent)
        make_private(folder)
    except FileExistsError:
        if not folder.is_dir():
            raise


def artifact_file(data_dir: Path, artifact: Artifact) -> Path:
    """Where an artifact's bytes are. Raises ArtifactNotFound if that were outside its task's folder.

    Also by a link: a tool must not have files of others given out.
    """
    tasks = tasks_folder(data_dir).resolve()
    path = (tasks / artifact.path).resolve()
    if not path.is_relative_to(tasks / artifact.task_id):
        raise ArtifactNotFound(artifact_id=artifact.artifact_id)
    return path


def remove_task_folder(tasks: Path, task_id: str) -> None:
    """Remove what a task has left; harmless where there is nothing."""
    if is_task_id(task_id):
        shutil.rmtree(tasks / task_id, ignore_errors=True)
