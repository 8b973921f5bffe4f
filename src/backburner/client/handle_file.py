"""A small file of open handles, so that a program that was restarted finds its tasks again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..json_file import locked, read_json, write_json


@dataclass(frozen=True, slots=True)
class OpenHandle:
    """What must be known to take up a task again: where it is, how it is asked about, and what was seen."""

    task_id: str
    server: str
    tool_name: str
    dialect: str
    seen: str = ""
    log_cursor: str | None = None
    #: The result, where it was told and the server may not tell it again.
    result: dict[str, Any] | None = None


class HandleFile:
    """Open handles by task id. Every write is atomic; programs that share the file wait for each other."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()

    def handles(self) -> dict[str, OpenHandle]:
        return {task_id: _open_handle(entry) for task_id, entry in read_json(self.path).items()}

    def keep(self, handle: OpenHandle, *, synced: bool = True) -> None:
        self._change(lambda entries: entries.update({handle.task_id: asdict(handle)}), synced=synced)

    def forget(self, task_id: str) -> None:
        self._change(lambda entries: entries.pop(task_id, None), synced=True)

    def _change(self, change: Callable[[dict[str, Any]], Any], *, synced: bool) -> None:
        with locked(self.path):
            entries = read_json(self.path)
            change(entries)
            write_json(self.path, entries, synced=synced)


def _open_handle(entry: dict[str, Any]) -> OpenHandle:
    """An entry of the file. One that an older release wrote calls the dialect `speech`."""
    older = {"dialect": entry["speech"]} if "speech" in entry else {}
    return OpenHandle(**{**{key: value for key, value in entry.items() if key != "speech"}, **older})
