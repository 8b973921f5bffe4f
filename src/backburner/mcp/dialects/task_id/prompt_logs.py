"""The prompt logs of one store: the server's own, and one in each folder that a call named.

A call may name the folder that its host reads: any folder over stdio, where host and server are the same
user, and one below `task_id.state_roots` over HTTP. The server that takes the call decides. The folders that
still wait for a line are listed, by store, in a file beside the server's own log. A folder is listed before
its task is submitted, so every later server and supervisor finds it there.
"""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import Any

from ....config import Settings
from ....errors import StateDirRefused
from ....json_file import locked, read_json, write_json
from ....store import Store
from .prompt_log import PromptLog

logger = logging.getLogger(__name__)

_LIST_FILE = "prompt_folders.json"
_LONGEST_SHOWN = 300


class PromptLogs:
    """Safe to use from many threads and processes, as each of the logs is."""

    def __init__(self, store: Store, settings: Settings, data_dir: Path) -> None:
        """The own log is in `state_dir`, or else in the folder of the tasks."""
        names = settings.task_id
        self._store = store
        self._names = (names.ui_prompt_file, names.state_file)
        self._own_folder = Path(names.state_dir) if names.state_dir else data_dir
        self._roots = [Path(root).expanduser().resolve() for root in names.state_roots]
        self._list_path = self._own_folder / _LIST_FILE
        self._complained_of: set[Path] = set()
        self.own = self._log_in(self._own_folder)

    def _log_in(self, folder: Path) -> PromptLog:
        return PromptLog(self._store, folder, *self._names)

    def enter(
        self, named: Any, external_id: str, owner: str, tool_name: str, *, anywhere: bool = False
    ) -> PromptLog:
        """Enter a task that is about to be submitted, in the folder that its call named, or None.

        It is on disk when this returns. Returns the log that the task's line will be in. Unless the call may
        name a folder `anywhere`, the folder has to be below one of `state_roots`. Raises StateDirRefused,
        which says nothing of a folder that is not allowed but what the call said.
        """
        folder = None if named is None else _resolved(named)
        if folder is None or folder == self._own_folder.resolve():
            self.own.enter(external_id, owner, tool_name)
            return self.own
        if not (anywhere or any(map(folder.is_relative_to, self._roots))):
            raise _refusal(named, "the operator of this server does not allow it")
        if (reason := self._objection(folder)) is not None:
            raise _refusal(named, reason)
        log = self._log_in(folder)
        try:
            with locked(self._list_path):
                if folder not in (listed := self._listed()):
                    self._list({*listed, folder})
                log.enter(external_id, owner, tool_name)
        except OSError as error:
            raise _refusal(named, error.strerror or "it cannot be written") from error
        return log

    def catch_up(self) -> list[str]:
        """Bring all files up to date with the store; the ids of the tasks that got their line now.

        A folder that cannot be written now waits and holds up no other.
        """
        written = self.own.catch_up()
        for folder in self._listed():
            reason = self._objection(folder)
            if reason is None:
                try:
                    written += self._log_in(folder).catch_up()
                    self._unlist_if_done(folder)
                except OSError as error:
                    reason = str(error)
            self._complain(folder, reason)
        return written

    def _complain(self, folder: Path, reason: str | None) -> None:
        """Once, for as long as it lasts."""
        if reason is None:
            self._complained_of.discard(folder)
        elif folder not in self._complained_of:
            self._complained_of.add(folder)
            logger.warning("The prompt log in %s has to wait: %s", folder, reason)

    def unfinished(self) -> list[tuple[str, str]]:
        """The tasks that still want a line: their ids and owners."""
        logs = [self.own, *map(self._log_in, self._listed())]
        return [task for log in logs for task in log.unfinished()]

    def _objection(self, folder: Path) -> str | None:
        """Return why no log can be in a folder that was resolved when it was named; None if it can."""
        try:
            if folder.resolve() != folder:
                return "it leads to another place than when it was named"
            if any((folder / name).is_symlink() for name in self._names):
                return "a file in it is a link to another place"
        except (OSError, RuntimeError) as error:
            return str(error)[:_LONGEST_SHOWN]
        return None

    # -- which folders wait

    def _listed(self) -> list[Path]:
        lists = self._lists()
        return [Path(folder) for folder in lists.get(self.own.store_id, [])] if lists else []

    def _lists(self) -> dict[str, list[str]]:
        try:
            return read_json(self._list_path)
        except (ValueError, TypeError):
            logger.warning("%s is damaged; it is written anew", self._list_path)
            return {}

    def _list(self, folders: set[Path]) -> None:
        lists = {**self._lists(), self.own.store_id: sorted(map(str, folders))}
        write_json(self._list_path, {store: waiting for store, waiting in lists.items() if waiting})

    def _unlist_if_done(self, folder: Path) -> None:
        if self._log_in(folder).is_anything_unfinished():
            return
        with locked(self._list_path):  # so that no task is entered there meanwhile
            if not self._log_in(folder).is_anything_unfinished():
                self._list(set(self._listed()) - {folder})


def _resolved(named: Any) -> Path:
    """The folder without links and `..`, so that it can be compared. Raises StateDirRefused."""
    if isinstance(named, str):
        # A name that is too long, a circle of links, a null, a user who is not there.
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            path = Path(named).expanduser()
            if path.is_absolute():
                return path.resolve()
    raise _refusal(named, "it must be the absolute path of a folder")


def _refusal(named: Any, reason: str) -> StateDirRefused:
    return StateDirRefused(folder=str(named)[:_LONGEST_SHOWN], reason=reason)
