"""What a supervisor says is wrong with it: a file beside its lock, for whoever looks whether it is well."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from ...errors import StoreError
from ...json_file import read_json, write_json

#: A store may refuse a write for a moment; that is nothing to complain of.
_PATIENCE_S = 3.0


class Complaint:
    """That a supervisor's store refuses its writes again and again, while its heartbeats may still arrive."""

    def __init__(self, data_dir: Path, supervisor_id: str) -> None:
        self._path = _file(data_dir)
        self._supervisor_id = supervisor_id
        self._refused_since: float | None = None
        self._said = False

    def refused(self, error: StoreError) -> None:
        """A write was refused; it will be tried again."""
        if self._refused_since is None:
            self._refused_since = time.monotonic()
        if not self._said and time.monotonic() - self._refused_since >= _PATIENCE_S:
            with contextlib.suppress(OSError):
                said = {"supervisor_id": self._supervisor_id, "reason": str(error)}
                write_json(self._path, said, synced=False)
                self._said = True

    def over(self) -> None:
        """A write was taken."""
        self._refused_since = None
        if self._said:
            self._said = False
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)


def complaint_of(data_dir: Path, supervisor_id: object) -> str | None:
    """Why the store refuses what this supervisor writes, if it does."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        said = read_json(_file(data_dir))
        if said.get("supervisor_id") == supervisor_id:
            return str(said.get("reason"))
    return None


def _file(data_dir: Path) -> Path:
    return data_dir / "supervisor.complaint"
