"""Files of the TaskId contract: prompt logs and the task file."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from ....core.files import locked, make_private, read_json, write_json
from ....core.lifecycle import State
from ....core.task import Task, TaskHead
from ....core.times import Clock, SystemClock, from_iso, iso
from ....errors import StateDirRefused, TaskNotFound
from ....settings import Settings
from ....store.protocol import Store
from ...results import result_uri
from .wire import FINISHED, STATE_FILE, STATUS, TASKS_KEY, UNFINISHED, Entry, is_line_of, result_line

logger = logging.getLogger(__name__)

#: Entries without a submitted task are dropped after this time: their process died.
_ABANDONED_MS = 60_000
#: Finished tasks in the task file.
_KEPT = 500

Content = dict[str, Any]


class PromptLog:
    """Prompt log and task file in one folder, for the tasks of one store.

    Safe for concurrent threads and processes; stores may share the folder.
    """

    def __init__(self, store: Store, folder: Path, prompt_file: str, *, clock: Clock | None = None) -> None:
        self.log_path = folder / prompt_file
        self.state_path = folder / STATE_FILE
        self._lock_path = folder / f".{STATE_FILE}.lock"
        self._store = store
        self._clock = clock or SystemClock()
        self._nothing_in: tuple[int, int] | None = None

    @cached_property
    def store_id(self) -> str:
        return hashlib.sha256(b"prompt log" + self._store.secret()).hexdigest()[:16]

    # -- entering tasks

    def enter(self, external_id: str, owner: str, tool_name: str) -> None:
        """Add an entry for a task about to be submitted; on disk when this returns."""
        with self._locked() as state:
            if self._find(state, external_id, owner) is None:
                state[TASKS_KEY].append(
                    {
                        "id": external_id,
                        "status": "queued",
                        "resultText": None,
                        "resultStatus": None,
                        "error": None,
                        "startedAt": None,
                        "finishedAt": None,
                        "tool": tool_name,
                        "owner": owner,
                        "taskId": external_id,
                        "jobId": None,
                        "store": self.store_id,
                        "enteredAt": iso(self._clock.now_ms()),
                        "logOffset": self._log_size(),
                    }
                )

    def withdraw(self, external_id: str, owner: str) -> None:
        """Remove the entry of a task that was not submitted."""
        with self._locked() as state:
            entry = self._find(state, external_id, owner)
            if entry is not None and entry["jobId"] is None:
                state[TASKS_KEY].remove(entry)

    def _find(self, state: Content, external_id: str, owner: str) -> Entry | None:
        wanted = (external_id, owner)
        return next((entry for entry in self._own(state) if (entry["id"], entry["owner"]) == wanted), None)

    def _own(self, state: Content, statuses: Collection[str] = frozenset(STATUS.values())) -> list[Entry]:
        """Return the entries of this store: other programs may have theirs."""
        entries = [entry for entry in state[TASKS_KEY] if isinstance(entry, dict)]
        return [e for e in entries if e.get("store") == self.store_id and e["status"] in statuses]

    # -- updates

    def catch_up(self) -> list[str]:
        """Update both files from the store; returns the ids of tasks whose line was written.

        Each line is on disk before the task file marks its task as finished. One read finds the changed
        tasks.
        """
        if not self.is_anything_unfinished():
            return []
        written: list[str] = []
        with self._locked() as state:
            entries = self._own(state, UNFINISHED)
            heads = self._store.heads([entry["jobId"] for entry in entries if entry["jobId"] is not None])
            for entry in entries:
                known = self._known(entry, heads)
                if known is not None:
                    entry.update(known)
                elif self._clock.now_ms() - from_iso(entry["enteredAt"]) > _ABANDONED_MS:
                    state[TASKS_KEY].remove(entry)
                if entry["status"] not in UNFINISHED and self._write_line(entry):
                    written.append(entry["jobId"])
            # Older finished tasks need no entry: their lines are written.
            for entry in self._own(state, FINISHED)[:-_KEPT]:
                state[TASKS_KEY].remove(entry)
        return written

    def unfinished(self) -> list[tuple[str, str]]:
        """Return ids and owners of tasks without a line."""
        entries = self._own(self._read(), UNFINISHED)
        return [(entry["jobId"], entry["owner"]) for entry in entries if entry["jobId"] is not None]

    def is_anything_unfinished(self) -> bool:
        """Return whether any task has no line yet; one `stat` while the file is unchanged."""
        try:
            found = self.state_path.stat()
        except FileNotFoundError:
            return False
        stamp = (found.st_ino, found.st_mtime_ns)
        if stamp == self._nothing_in:
            return False
        if self._own(self._read(), UNFINISHED):
            return True
        self._nothing_in = stamp
        return False

    def _known(self, entry: Entry, heads: Mapping[str, TaskHead]) -> Entry | None:
        """Return the changed fields of an entry; None if its task was not submitted yet."""
        if entry["jobId"] is None:
            task = self._store.find(entry["id"], entry["owner"])
            return None if task is None else _shown(task)
        head = heads.get(entry["jobId"])
        if head is not None and STATUS[head.state] == entry["status"]:
            return {}
        try:
            return _shown(self._store.get(entry["jobId"]))
        except TaskNotFound:  # expired and deleted
            return _failed(entry["tool"], State.EXPIRED, "The task expired")

    # -- the log

    def _write_line(self, entry: Entry) -> bool:
        """Append the entry's line unless it is there; returns whether it was appended."""
        if self._is_written(entry):
            return False
        self._append(result_line(entry, iso(self._clock.now_ms())))
        return True

    def _is_written(self, entry: Entry) -> bool:
        try:
            with self.log_path.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                # A shorter log is a new file after rotation.
                log.seek(entry["logOffset"] if entry["logOffset"] <= size else 0)
                return any(is_line_of(line, entry) for line in log)
        except FileNotFoundError:
            return False

    def _append(self, line: bytes) -> None:
        """Append with one write, so that readers see whole lines, and sync."""
        new = not self.log_path.exists()
        fd = os.open(self.log_path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                line = b"\n" + line  # after an incomplete line
            written = os.write(fd, line)
            if written != len(line):
                os.ftruncate(fd, size)
                raise OSError(f"{self.log_path}: only {written} of {len(line)} bytes could be written")
            os.fsync(fd)
        finally:
            os.close(fd)
        if new:
            _sync_folder(self.log_path.parent)

    def _log_size(self) -> int:
        try:
            return self.log_path.stat().st_size
        except FileNotFoundError:
            return 0

    # -- the task file

    @contextmanager
    def _locked(self) -> Iterator[Content]:
        """Yield the content of the task file under a lock, and write it back if changed."""
        make_private(self.state_path.parent)
        fd = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            state = self._read()
            before = json.dumps(state)
            yield state
            if json.dumps(state) != before:
                self._write(state)
        finally:
            os.close(fd)

    def _read(self) -> Content:
        try:
            state = json.loads(self.state_path.read_text("utf-8"))
        except FileNotFoundError:
            return {TASKS_KEY: []}
        except ValueError:
            logger.warning("%s is not JSON and is replaced", self.state_path)
            return {TASKS_KEY: []}
        if not isinstance(state, dict) or not isinstance(state.get(TASKS_KEY, []), list):
            logger.warning("%s is not a task file and is replaced", self.state_path)
            return {TASKS_KEY: []}
        return {**state, TASKS_KEY: state.get(TASKS_KEY, [])}

    def _write(self, state: Content) -> None:
        """Replace the file atomically."""
        draft = self.state_path.with_name(f".{self.state_path.name}.new")
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8", errors="replace") as out:
            out.write(_text(state))
            out.flush()
            os.fsync(out.fileno())
        draft.replace(self.state_path)
        _sync_folder(self.state_path.parent)


# -- entries ---------------------------------------------------------------------------------------


def _shown(task: Task) -> Entry:
    """Return the entry fields of a task."""
    shown: Entry = {
        "jobId": task.task_id,
        "status": STATUS[task.state],
        "startedAt": iso(task.started_at),
        "finishedAt": iso(task.completed_at),
    }
    if not task.finished:
        return shown
    if task.state is State.SUCCEEDED:
        return {**shown, "resultStatus": "success", "resultText": result_text(task)}
    words = task.error.message if task.error else f"The task is {task.state}"
    return {**shown, **_failed(task.tool_name, task.state, words)}


def _failed(tool_name: str, state: State, words: str) -> Entry:
    status = STATUS[state]
    text = f"**{tool_name}: {status}**\n\n{words}"
    kind = "aborted" if state is State.CANCELLED else "error"
    return {"status": status, "resultStatus": kind, "resultText": text, "error": words}


def result_text(task: Task) -> str:
    """Return the result as Markdown: text as it is, texts of a `CallToolResult`, or JSON."""
    result = task.result
    if isinstance(result, str):
        return result
    if isinstance(result, Mapping):
        if result.get("truncated") is True and isinstance(result.get("preview"), str):
            beginning = _texts(result["rest"]) if "rest" in result else result["preview"]
            return (
                f"{beginning}\n\n…\n\nThis is the beginning; all of it is here:\n\n{result_uri(task.task_id)}"
            )
        if task.result_kind == "call_tool_result":
            return _texts(result)
    return f"```json\n{json.dumps(result, ensure_ascii=False, indent=2)}\n```"


def _texts(result: Mapping[str, Any]) -> str:
    return "\n\n".join(block["text"] for block in result.get("content", ()) if block.get("type") == "text")


def _text(state: Content) -> str:
    """Serialize the task file with one line per entry; `indent` would be much slower."""
    entries = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in state[TASKS_KEY])
    others = "".join(
        f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)},\n"
        for key, value in state.items()
        if key != TASKS_KEY
    )
    return f"{{{others}{json.dumps(TASKS_KEY)}: [\n{entries}\n]}}\n"


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


_LIST_FILE = "prompt_folders.json"
_LONGEST_SHOWN = 300


class PromptLogs:
    """The server's own prompt log and those in folders named by calls. Thread- and process-safe."""

    def __init__(self, store: Store, settings: Settings, data_dir: Path) -> None:
        """The own log is in `state_dir`, or else in the data folder."""
        names = settings.task_id
        self._store = store
        self._prompt_file = names.ui_prompt_file
        self._own_folder = Path(names.state_dir) if names.state_dir else data_dir
        self._roots = [Path(root).expanduser().resolve() for root in names.state_roots]
        self._list_path = self._own_folder / _LIST_FILE
        self._complained_of: set[Path] = set()
        self.own = self._log_in(self._own_folder)

    def _log_in(self, folder: Path) -> PromptLog:
        return PromptLog(self._store, folder, self._prompt_file)

    def enter(
        self, named: Any, external_id: str, owner: str, tool_name: str, *, anywhere: bool = False
    ) -> PromptLog:
        """Add an entry for a task in the folder that its call names, or the own one; returns that log.

        It is on disk when this returns. The folder must be below one of `state_roots`, unless `anywhere`.
        Raises StateDirRefused, which reveals nothing about a refused folder.
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
        """Update all files; returns the ids of tasks whose line was written. A failing folder is retried
        later.
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
        """Log a failing folder once."""
        if reason is None:
            self._complained_of.discard(folder)
        elif folder not in self._complained_of:
            self._complained_of.add(folder)
            logger.warning("Prompt log in %s could not be written and is retried: %s", folder, reason)

    def unfinished(self) -> list[tuple[str, str]]:
        """Return ids and owners of tasks without a line."""
        logs = [self.own, *map(self._log_in, self._listed())]
        return [task for log in logs for task in log.unfinished()]

    def _objection(self, folder: Path) -> str | None:
        """Return the reason why a resolved folder cannot hold a log; None if it can."""
        try:
            if folder.resolve() != folder:
                return "it leads to another place than when it was named"
            if any((folder / name).is_symlink() for name in (self._prompt_file, STATE_FILE)):
                return "a file in it is a link to another place"
        except (OSError, RuntimeError) as error:
            return str(error)[:_LONGEST_SHOWN]
        return None

    # -- list of folders

    def _listed(self) -> list[Path]:
        lists = self._lists()
        return [Path(folder) for folder in lists.get(self.own.store_id, [])] if lists else []

    def _lists(self) -> dict[str, list[str]]:
        try:
            return read_json(self._list_path)
        except (ValueError, TypeError):
            logger.warning("%s is damaged and is replaced", self._list_path)
            return {}

    def _list(self, folders: set[Path]) -> None:
        lists = {**self._lists(), self.own.store_id: sorted(map(str, folders))}
        write_json(self._list_path, {store: waiting for store, waiting in lists.items() if waiting})

    def _unlist_if_done(self, folder: Path) -> None:
        if self._log_in(folder).is_anything_unfinished():
            return
        with locked(self._list_path):
            if not self._log_in(folder).is_anything_unfinished():
                self._list(set(self._listed()) - {folder})


def _resolved(named: Any) -> Path:
    """Return the folder without links and `..`. Raises StateDirRefused."""
    if isinstance(named, str):
        # Name too long, link cycle, null byte, or unknown user.
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            path = Path(named).expanduser()
            if path.is_absolute():
                return path.resolve()
    raise _refusal(named, "it must be the absolute path of a folder")


def _refusal(named: Any, reason: str) -> StateDirRefused:
    return StateDirRefused(folder=str(named)[:_LONGEST_SHOWN], reason=reason)
