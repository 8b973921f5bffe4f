"""Schemas and descriptions of the task tools, written for models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

from ....core.json_text import LONGEST_PATH
from ....core.lifecycle import State
from ....core.requests import (
    MAX_KEY_CHARS,
    MAX_REASON_CHARS,
    MAX_TAG_CHARS,
    MAX_TAGS,
    MOST_RESOURCES,
    PRIORITIES,
)
from ....core.task import Action
from ....core.times import LONGEST_S
from ....tools.estimates import EstimateSource
from ...results import FURTHEST, MOST_BYTES
from . import wire

#: Most tasks per call, and longest wait.
MOST_TASKS, LONGEST_WAIT_S = 100, 3600

Schema = dict[str, Any]


@dataclass(frozen=True)
class TaskToolSchema:
    description: str
    inputs: Schema
    outputs: Schema
    read_only: bool = True

    def listed(self, name: str) -> dict[str, Any]:
        """Return the tool as listed."""
        return {
            "name": name,
            "description": self.description,
            "inputSchema": self.inputs,
            "outputSchema": self.outputs,
            "annotations": {"readOnlyHint": self.read_only, "openWorldHint": False},
        }


def _words(text: str) -> str:
    return " ".join(text.split())


def _object(required: list[str], **properties: Any) -> Schema:
    return {"type": "object", "properties": properties, "required": required}


def _inputs(required: list[str], **properties: Any) -> Schema:
    return {**_object(required, **properties), "additionalProperties": False}


def _said(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description}


TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
FLAG: Schema = {"type": "boolean"}
TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
WHOLE_OR_NULL: Schema = {"type": ["integer", "null"]}
NUMBER_OR_NULL: Schema = {"type": ["number", "null"]}
OBJECT_OR_NULL: Schema = {"type": ["object", "null"]}
#: Token of the task's call, and run time of its tool in milliseconds.
RESULT_META = _object(
    ["progressToken", "duration"], progressToken={"type": ["string", "integer"]}, duration=WHOLE
)
TEXTS: Schema = {"type": "array", "items": TEXT}
#: Properties of `wire.estimated`.
ESTIMATE: Schema = {
    "estimated_runtime_seconds": {"type": "number"},
    "estimate_source": {"type": "string", "enum": [str(source) for source in EstimateSource]},
}
OBJECTS: Schema = {"type": "array", "items": {"type": "object"}}
STATE: Schema = {"type": "string", "enum": [str(state) for state in State]}
TASK_ID = _said({"type": "string", "maxLength": 256}, "The id of the task: tsk_…")
CURSOR: Schema = {"type": ["string", "null"], "maxLength": 2048}
KEY_OR_NULL: Schema = {"type": ["string", "null"], "minLength": 1, "maxLength": MAX_KEY_CHARS}
TAGS: Schema = {
    "type": ["array", "null"],
    "maxItems": MAX_TAGS,
    "items": {"type": "string", "minLength": 1, "maxLength": MAX_TAG_CHARS},
}


def _amount(kind: str, most: float | None) -> Schema:
    """Return the schema of an optional positive number."""
    return {"type": [kind, "null"], "exclusiveMinimum": 0, "maximum": most}


_STATUS = _object(
    ["task_id", "state", "tool_name", "attempt", "queue", "submitted_at", "updated_at", "cancel_requested"],
    task_id=TEXT,
    state=STATE,
    tool_name=TEXT,
    attempt=WHOLE,
    priority=WHOLE,
    queue=TEXT,
    position=WHOLE_OR_NULL,
    worker_id=TEXT_OR_NULL,
    submitted_at=TEXT,
    started_at=TEXT_OR_NULL,
    updated_at=TEXT,
    heartbeat_at=TEXT_OR_NULL,
    completed_at=TEXT_OR_NULL,
    **ESTIMATE,
    progress=OBJECT_OR_NULL,
    eta_s=NUMBER_OR_NULL,
    cancel_requested=FLAG,
    timeout_at=TEXT_OR_NULL,
    expires_at=TEXT_OR_NULL,
    tags=TEXTS,
    error=OBJECT_OR_NULL,
    **dict.fromkeys(("waits_for", "cancel_reason"), TEXT),
    questions=OBJECTS,
    poll_after_ms=WHOLE,
)

#: Properties of one task in `submit_task`.
ONE_TASK: Schema = {
    "tool_name": _said({"type": "string", "maxLength": 256}, "The slow tool to run"),
    "inputs": _said({"type": "object"}, "Its arguments, as for a direct call"),
    "resources": _said(
        {
            **_inputs(
                [],
                resource_class=_said(KEY_OR_NULL, "The queue, such as cpu_standard"),
                max_runtime_s=_said(
                    _amount("number", MOST_RESOURCES.max_runtime_s), "How long it may run, in seconds"
                ),
                cpu=_said(_amount("number", MOST_RESOURCES.cpu), "How many CPUs it may use"),
                memory_mb=_said(_amount("integer", MOST_RESOURCES.memory_mb), "Memory, in MB"),
                scratch_mb=_said(_amount("integer", MOST_RESOURCES.scratch_mb), "Disk, in MB"),
            ),
            "type": ["object", "null"],
        },
        "Limits of this task, where they are to be narrower than the tool's and the server's",
    ),
    "ttl_s": _said(_amount("number", LONGEST_S), "How long the task and its result are kept after it ended"),
    "idempotency_key": _said(KEY_OR_NULL, "A key of your choice that makes repeating this call harmless"),
    "priority": _said(
        {"type": ["integer", "null"], "minimum": PRIORITIES[0], "maximum": PRIORITIES[-1]},
        "Higher goes first; 0 when not given",
    ),
    "tags": _said(TAGS, "Labels to find the task by, as project:screening"),
}

#: Schema of each task in a batch.
ONE_OF_MANY = _inputs(["tool_name"], **ONE_TASK)

#: Properties of a task in `wait_for_task`.
_AWAITED: Schema = {
    "task_id": TEXT,
    "state": STATE,
    "finished": FLAG,
    "result": {},
    "artifacts": OBJECTS,
    "error": OBJECT_OR_NULL,
    "status": TEXT,
    "questions": OBJECTS,
}

SCHEMAS: dict[str, TaskToolSchema] = {
    wire.SUBMIT_TASK: TaskToolSchema(
        _words("""
        Start a slow tool as a background task and get control back at once; or several, with
        tasks. Use it when a tool may take longer than you want to wait, or to run several at the
        same time. Gives the task_id; keep it, then call wait_for_task. With the same
        idempotency_key and inputs you get the same task, so that a repeated call does no harm.
        If the queue is full, wait as long as the error says and submit again.
        """),
        _inputs(
            [],
            **ONE_TASK,
            tasks=_said(
                {"type": "array", "minItems": 1, "maxItems": MOST_TASKS, "items": {"type": "object"}},
                "In place of all else: several tasks, each with tool_name, inputs and so on, as for one",
            ),
        ),
        {
            **_object(
                [],
                task_id=TEXT,
                state=STATE,
                queue=TEXT,
                position=WHOLE_OR_NULL,
                submitted_at=TEXT,
                poll_after_ms=WHOLE,
                **ESTIMATE,
                tasks=_said(OBJECTS, "For each in its place: task_id and state, or error"),
            ),
            "anyOf": [
                {"required": ["task_id", "state", "queue", "position", "submitted_at", "poll_after_ms"]},
                {"required": ["tasks"]},
            ],
        },
        read_only=False,
    ),
    wire.GET_TASK_STATUS: TaskToolSchema(
        _words("""
        See how a task is doing, without waiting: its state, progress and expected time left. To
        wait for the end call wait_for_task instead of calling this again and again.
        When the state is succeeded, failed, cancelled or timed_out it is over: call
        get_task_result.
        """),
        _inputs(["task_id"], task_id=TASK_ID),
        _STATUS,
    ),
    wire.WAIT_FOR_TASK: TaskToolSchema(
        _words("""
        Wait for a task to end, or for several: this is the way to get results, one call and not
        forty. A finished task comes with its result, or its error. If the answer says that a task
        goes on, call this again, or do something else meanwhile. Of several, with task_ids, you
        get only what is new since the cursor of the last answer: pass it on each time.
        """),
        _inputs(
            [],
            task_id=TASK_ID,
            task_ids=_said(
                {"type": "array", "minItems": 1, "maxItems": MOST_TASKS, "items": TASK_ID},
                "In place of task_id: several tasks",
            ),
            **{
                "for": _said(
                    {"type": "string", "enum": ["any", "all"]},
                    "Of several: until any ends that you were not told of, which is the default, or all",
                )
            },
            cursor=_said(CURSOR, "Of several: cursor of the last answer"),
            timeout_s=_said(
                {"type": "number", "minimum": 0, "maximum": LONGEST_WAIT_S},
                "How long to wait at most; as long as your client can when not given",
            ),
        ),
        _object(
            ["finished"],
            **_AWAITED,
            tasks={"type": "array", "items": _object(["task_id", "state", "finished"], **_AWAITED)},
            unfinished=WHOLE,
            cursor=TEXT,
        ),
    ),
    wire.GET_TASK_RESULT: TaskToolSchema(
        _words("""
        Get what a finished task has produced: its result, its files (artifacts, with links), or
        its error. It stays available until the task expires, so you may ask again. If the task
        is not finished you are told when to come back; wait_for_task waits for you. Of a
        long result you get the beginning, the end and the shape: read parts of it by path, or
        by offset and length.
        """),
        _inputs(
            ["task_id"],
            task_id=TASK_ID,
            path=_said(
                {"type": ["string", "null"], "maxLength": LONGEST_PATH},
                'Only what is there in the result: $.name, ["name"], [3], [10:20], [*], one after another',
            ),
            offset=_said(
                {"type": ["integer", "null"], "minimum": 0, "maximum": FURTHEST},
                "Only from this byte on, of all or of what is at the path",
            ),
            length=_said(
                {"type": ["integer", "null"], "minimum": 1, "maximum": MOST_BYTES}, "So many bytes of it"
            ),
        ),
        _object(
            ["task_id", "state", "result", "artifacts", "error", "completed_at"],
            task_id=TEXT,
            state=STATE,
            result={},
            range=_said(
                _object(["offset", "length", "size"], offset=WHOLE, length=WHOLE, size=WHOLE),
                "Where in what you asked for this is, if it is not all; read on at offset + length",
            ),
            shape=TEXT,
            artifacts=OBJECTS,
            error=OBJECT_OR_NULL,
            completed_at=TEXT_OR_NULL,
            _meta=RESULT_META,
        ),
    ),
    wire.TAIL_TASK_LOGS: TaskToolSchema(
        _words("""
        Read what a task has printed and logged, oldest first: to see what it is doing, or why
        it failed. Give the next_cursor of the last answer as cursor to read on; truncated says
        that more is there already.
        """),
        _inputs(
            ["task_id"],
            task_id=TASK_ID,
            cursor=_said(CURSOR, "Where to read on: next_cursor of the last answer"),
            limit=_said(
                {"type": "integer", "minimum": 1, "maximum": 5000}, "How many lines; 200 when not given"
            ),
        ),
        _object(
            ["task_id", "lines", "next_cursor", "truncated"],
            task_id=TEXT,
            lines={
                "type": "array",
                "items": _object(
                    ["seq", "ts", "stream", "level", "message"],
                    seq=WHOLE,
                    ts=TEXT,
                    stream=TEXT,
                    level=TEXT,
                    message=TEXT,
                ),
            },
            next_cursor=TEXT,
            truncated=FLAG,
        ),
    ),
    wire.LIST_TASK_ARTIFACTS: TaskToolSchema(
        _words("""
        List the files that a task has made, also while it still runs: to look at what is there
        so far. Read each as the resource that it names, or download it by its link, if it has
        one.
        """),
        _inputs(["task_id"], task_id=TASK_ID),
        _object(["task_id", "state", "artifacts"], task_id=TEXT, state=STATE, artifacts=OBJECTS),
    ),
    wire.LIST_TASKS: TaskToolSchema(
        _words("""
        List your tasks, newest first: for example to find one again after a break, or to see
        what still runs. All filters are optional. Give next_cursor as cursor to get the next
        page.
        """),
        _inputs(
            [],
            states=_said(
                {"type": ["array", "null"], "maxItems": 100, "items": STATE},
                "Only tasks in one of these states",
            ),
            tool_name=_said(KEY_OR_NULL, "Only tasks of this tool"),
            tags_any=_said(TAGS, "Only tasks with one of these tags"),
            submitted_after=_said(
                {"type": ["string", "null"], "maxLength": 64},
                "Only tasks submitted after this time, ISO 8601",
            ),
            limit=_said({"type": "integer", "minimum": 1, "maximum": 500}, "How many; 50 when not given"),
            cursor=_said(CURSOR, "Where to go on: next_cursor of the last answer"),
        ),
        _object(
            ["tasks", "next_cursor"], tasks={"type": "array", "items": _STATUS}, next_cursor=TEXT_OR_NULL
        ),
    ),
    wire.CANCEL_TASK: TaskToolSchema(
        _words("""
        Stop a task that is not needed any more. It may take a few seconds to stop; one that is
        finished already stays as it is, and cancelling twice does no harm.
        """),
        _inputs(
            ["task_id"],
            task_id=TASK_ID,
            reason=_said(
                {"type": ["string", "null"], "minLength": 1, "maxLength": MAX_REASON_CHARS},
                "Why, for the record",
            ),
        ),
        _object(["task_id", "state", "acknowledged"], task_id=TEXT, state=STATE, acknowledged=FLAG),
        read_only=False,
    ),
    wire.ANSWER_TASK: TaskToolSchema(
        _words("""
        Answer a question of a task that is input_required; get_task_status shows its
        questions, each with its key and the schema of its answer. Ask the user what you do not
        know yourself. Then call wait_for_task.
        """),
        _inputs(
            ["task_id"],
            task_id=TASK_ID,
            question=_said(KEY_OR_NULL, "The key of the question, when there are several"),
            action=_said(
                {"type": "string", "enum": list(get_args(Action))},
                "accept when not given; decline says no, cancel dismisses the question",
            ),
            content=_said({"type": ["object", "null"]}, "The answer, as the schema of the question has it"),
        ),
        _STATUS,
        read_only=False,
    ),
}
