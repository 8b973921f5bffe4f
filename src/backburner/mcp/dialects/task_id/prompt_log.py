"""The files of the TaskId contract: the prompt log, and the task file that says how each task is.

The log is how a host learns that a task is over: one line for each task, whole, on disk, and never
two. The task file is the writer's own memory too: a task is entered before it is submitted, its
line is written before the file calls it finished, and where the log ended at its entry tells how
far back to look for a line after a crash in between. A lock file keeps writers apart, in
whatever process they are.
"""

from __future__ import annotations

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

from ....clock import Clock, SystemClock
from ....errors import TaskNotFound
from ....folders import make_private
from ....lifecycle import State
from ....store import Store
from ....task import Task, TaskHead
from ....times import from_iso, iso
from ...links import result_uri
from .wire import FINISHED, STATUS, TASKS_KEY, UNFINISHED, Entry, is_line_of, result_line

logger = logging.getLogger(__name__)

#: An entry whose submission never came, since its process died in between, is dropped after so long.
_ABANDONED_MS = 60_000
#: So many finished tasks stay in the task file.
_KEPT = 500

Content = dict[str, Any]


class PromptLog:
    """The prompt log and the task file in one folder, for the tasks of one store.

    Safe to use from many threads and processes; stores may share the folder.
    """

    def __init__(
        self, store: Store, folder: Path, prompt_file: str, state_file: str, *, clock: Clock | None = None
    ) -> None:
        self.log_path = folder / prompt_file
        self.state_path = folder / state_file
        self._lock_path = folder / f".{state_file}.lock"
        self._store = store
        self._clock = clock or SystemClock()
        self._nothing_in: tuple[int, int] | None = None

    @cached_property
    def store_id(self) -> str:
        return hashlib.sha256(b"prompt log" + self._store.secret()).hexdigest()[:16]

    # -- entering tasks

    def enter(self, external_id: str, owner: str, tool_name: str) -> None:
        """Note that a task is about to be submitted; on disk when this returns."""
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
        """The task was not submitted after all. An entry that has a task stays."""
        with self._locked() as state:
            entry = self._find(state, external_id, owner)
            if entry is not None and entry["jobId"] is None:
                state[TASKS_KEY].remove(entry)

    def _find(self, state: Content, external_id: str, owner: str) -> Entry | None:
        wanted = (external_id, owner)
        return next((entry for entry in self._own(state) if (entry["id"], entry["owner"]) == wanted), None)

    def _own(self, state: Content, statuses: Collection[str] = frozenset(STATUS.values())) -> list[Entry]:
        """The entries of this store: the file may have others, and fields of other programs."""
        entries = [entry for entry in state[TASKS_KEY] if isinstance(entry, dict)]
        return [e for e in entries if e.get("store") == self.store_id and e["status"] in statuses]

    # -- keeping up

    def catch_up(self) -> list[str]:
        """Bring both files up to date with the store; the ids of the tasks that got their line now.

        Each line is on disk before the task file says that its task is over. One read tells which
        tasks have moved on, however many are unfinished; only those are read whole.
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
            # The older finished ones need no entry any more: their lines are written.
            for entry in self._own(state, FINISHED)[:-_KEPT]:
                state[TASKS_KEY].remove(entry)
        return written

    def unfinished(self) -> list[tuple[str, str]]:
        """The tasks that still want a line: their ids and owners."""
        entries = self._own(self._read(), UNFINISHED)
        return [(entry["jobId"], entry["owner"]) for entry in entries if entry["jobId"] is not None]

    def is_anything_unfinished(self) -> bool:
        """Whether any task still wants a line. Costs one `stat` as long as nothing is entered."""
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
        """What is new of an entry's task; None when it was not submitted (yet)."""
        if entry["jobId"] is None:
            task = self._store.find(entry["id"], entry["owner"])
            return None if task is None else _shown(task)
        head = heads.get(entry["jobId"])
        if head is not None and STATUS[head.state] == entry["status"]:
            return {}
        try:
            return _shown(self._store.get(entry["jobId"]))
        except TaskNotFound:  # it expired and was forgotten while nobody looked
            return _failed(entry["tool"], State.EXPIRED, "The task expired")

    # -- the log

    def _write_line(self, entry: Entry) -> bool:
        """Append the entry's line unless it is there already; whether it was appended."""
        if self._is_written(entry):
            return False
        self._append(result_line(entry, iso(self._clock.now_ms())))
        return True

    def _is_written(self, entry: Entry) -> bool:
        try:
            with self.log_path.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                # A shorter log is another one: it was put aside, and this is its successor.
                log.seek(entry["logOffset"] if entry["logOffset"] <= size else 0)
                return any(is_line_of(line, entry) for line in log)
        except FileNotFoundError:
            return False

    def _append(self, line: bytes) -> None:
        """One write, so that a reader never sees two lines mixed; on disk when this returns."""
        new = not self.log_path.exists()
        fd = os.open(self.log_path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                line = b"\n" + line  # somebody was cut off in the middle of a line
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
        """The content of the task file, for this writer alone; what is changed in it is written back."""
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
            logger.warning("%s is not JSON; it is written anew", self.state_path)
            return {TASKS_KEY: []}
        if not isinstance(state, dict) or not isinstance(state.get(TASKS_KEY, []), list):
            logger.warning("%s is not a task file; it is written anew", self.state_path)
            return {TASKS_KEY: []}
        return {**state, TASKS_KEY: state.get(TASKS_KEY, [])}

    def _write(self, state: Content) -> None:
        """Replace the file, so that a reader finds the old or the new one, whole."""
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
    """What an entry says of a task."""
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
    """The result as Markdown: text as it is, the texts of a `CallToolResult`, anything else as JSON."""
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
    """The task file: a line for each entry. (`indent` would do it too, but many times slower.)"""
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
