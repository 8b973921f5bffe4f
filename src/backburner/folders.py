"""Where the files of tasks are: `tasks/<task_id>/` in the data folder; and folders for their owner alone."""

from __future__ import annotations

import shutil
from pathlib import Path

from .task_ids import is_task_id


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


def remove_task_folder(tasks: Path, task_id: str) -> None:
    """Remove what a task has left; harmless where there is nothing."""
    if is_task_id(task_id):
        shutil.rmtree(tasks / task_id, ignore_errors=True)
