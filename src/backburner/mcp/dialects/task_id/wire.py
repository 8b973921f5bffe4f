"""The TaskId contract: the host names the task, and reads its result from a prompt log.

The prompt log (`ui-prompts.jsonl`) has one line per finished task; the task file (`mcp_tasks.v1.json`) has
the status of each task.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ....core.lifecycle import State

NAME = "task-id"
#: In the `_meta` of a call: the host's id, unless the host names another key.
TASK_ID_KEY = "taskId"
#: Path in the `_meta` of a call to the name of that key.
_ASYNC_TASK, _TASK_ID_KEY_KEY = "asyncTask", "taskIdKey"
#: Path in the `_meta` of a call to the host's state folder.
STATE_DIR_KEYS = ("chatos", "uiApp", "stateDir")
#: Key of the entries in the task file.
TASKS_KEY = "mcpTasks"
STATE_FILE = "mcp_tasks.v1.json"

STATUS: Mapping[State, str] = MappingProxyType(
    {
        **dict.fromkeys((State.QUEUED, State.SCHEDULED), "queued"),
        **dict.fromkeys((State.RUNNING, State.INPUT_REQUIRED), "running"),
        **dict.fromkeys((State.CANCEL_REQUESTED, State.CANCELLING), "running"),
        State.SUCCEEDED: "completed",
        **dict.fromkeys((State.FAILED, State.TIMED_OUT, State.EXPIRED), "failed"),
        State.CANCELLED: "aborted",
    }
)
UNFINISHED = frozenset({"queued", "running"})
FINISHED = frozenset(STATUS.values()) - UNFINISHED
#: Values of `status` or `resultStatus` for a failed task.
FAILED = frozenset({"failed", "aborted", "error"})

Entry = dict[str, Any]


def state_dir_in(meta: Mapping[str, Any]) -> Any:
    """Return the folder that a call names for its prompt log; None without one."""
    found: Any = meta
    for key in STATE_DIR_KEYS:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def task_id_key_in(meta: Mapping[str, Any]) -> str:
    """Return the key under which the `_meta` of a call has the host's id."""
    told = meta.get(_ASYNC_TASK)
    key = told.get(_TASK_ID_KEY_KEY) if isinstance(told, Mapping) else None
    return key if isinstance(key, str) and key else TASK_ID_KEY


def naming_task(task_id: str, key: str) -> dict[str, Any]:
    """Return the `_meta` entries that give the host's id under that key."""
    told: dict[str, Any] = {} if key == TASK_ID_KEY else {_ASYNC_TASK: {_TASK_ID_KEY_KEY: key}}
    return {**told, key: task_id}


def result_line(entry: Entry, ts: str) -> bytes:
    """Return the prompt log line of a finished task."""
    line = {
        "type": "ui_prompt",
        "action": "request",
        "requestId": entry["id"],
        "ts": ts,
        "prompt": {
            "kind": "result",
            "title": entry["tool"],
            "status": entry["status"],
            "markdown": entry["resultText"] or "",
        },
        "taskId": entry["id"],
        "jobId": entry["jobId"],
    }
    return json.dumps(line, ensure_ascii=False).encode("utf-8", errors="replace") + b"\n"


def is_line_of(line: bytes, entry: Entry) -> bool:
    """Return whether a line of the log is about this entry's task."""
    try:
        found = json.loads(line)
    except ValueError:
        return False
    return (
        isinstance(found, dict) and found.get("jobId") == entry["jobId"] and found.get("type") == "ui_prompt"
    )


def result_prompt(line: bytes) -> dict[str, dict[str, Any]]:
    """Return the prompt by request id, if the line requests a result prompt."""
    # Skip parsing most lines, which are other prompts and answers.
    if b'"result"' not in line or b'"ui_prompt"' not in line:
        return {}
    try:
        entry = json.loads(line)
    except ValueError:
        return {}  # torn by a crash of its writer
    if not isinstance(entry, dict) or entry.get("type") != "ui_prompt" or entry.get("action") != "request":
        return {}
    request_id, prompt = entry.get("requestId"), entry.get("prompt")
    if not isinstance(request_id, str) or not isinstance(prompt, dict) or prompt.get("kind") != "result":
        return {}
    return {request_id: prompt}
