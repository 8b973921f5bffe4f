"""The TaskId contract: the host names the task, and finds its result in a log of prompts.

Of the two files, the prompt log (`ui-prompts.jsonl`) tells that a task is over, in one line for each, and
the task file (`mcp_tasks.v1.json`) says how each task is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ....lifecycle import State

NAME = "task-id"
#: In the `_meta` of a call: the id that the host chose, unless the host names another key for it.
TASK_ID_KEY = "taskId"
#: Where in the `_meta` of a call the host names that key: its `callMeta` goes with every call.
_ASYNC_TASK, _TASK_ID_KEY_KEY = "asyncTask", "taskIdKey"
#: Where in the `_meta` of a call the host says in which folder it reads the log.
STATE_DIR_KEYS = ("chatos", "uiApp", "stateDir")
#: The list of entries in the task file.
TASKS_KEY = "mcpTasks"

STATUS: Mapping[State, str] = MappingProxyType(
    {
        State.QUEUED: "queued",
        State.SCHEDULED: "queued",
        State.RUNNING: "running",
        State.INPUT_REQUIRED: "running",
        State.CANCEL_REQUESTED: "running",
        State.CANCELLING: "running",
        State.SUCCEEDED: "completed",
        State.FAILED: "failed",
        State.TIMED_OUT: "failed",
        State.EXPIRED: "failed",
        State.CANCELLED: "aborted",
    }
)
UNFINISHED = frozenset({"queued", "running"})
FINISHED = frozenset(STATUS.values()) - UNFINISHED
#: What the task file may say of a task without a result, in its status or in that of its result.
FAILED = frozenset({"failed", "aborted", "error"})

Entry = dict[str, Any]


def state_dir_in(meta: Mapping[str, Any]) -> Any:
    """The folder that the `_meta` of a call names for its prompt log; None when it names none."""
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
    """Return what the `_meta` of a call says to give the host's id, under that key."""
    told: dict[str, Any] = {} if key == TASK_ID_KEY else {_ASYNC_TASK: {_TASK_ID_KEY_KEY: key}}
    return {**told, key: task_id}


def result_line(entry: Entry, ts: str) -> bytes:
    """The line of the prompt log that tells of a task's end."""
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
    """Whether a line of the log tells of this entry's task."""
    try:
        found = json.loads(line)
    except ValueError:
        return False
    return (
        isinstance(found, dict) and found.get("jobId") == entry["jobId"] and found.get("type") == "ui_prompt"
    )


def result_prompt(line: bytes) -> dict[str, dict[str, Any]]:
    """The prompt by its request id, if the line is the request entry of a result."""
    # Most lines are others' prompts and answers: they are not worth parsing.
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
