"""Input schemas and descriptions of the task tools, written for models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
from ...results import FURTHEST, MOST_BYTES
from . import wire

#: Most tasks per call.
MOST_TASKS = 100

Schema = dict[str, Any]

#: Limits that calls are checked against, but that are not listed: every request of a host carries the list.
_UNLISTED = frozenset(
    {
        *("minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum", "exclusiveMinimum"),
        "additionalProperties",
    }
)
_READS: Mapping[str, bool] = {"readOnlyHint": True}


@dataclass(frozen=True)
class TaskToolSchema:
    """A task tool: `inputs` is what its calls are checked against."""

    description: str
    inputs: Schema
    annotations: Mapping[str, bool] = field(default_factory=lambda: _READS)

    def listed(self, name: str) -> dict[str, Any]:
        """Return the tool as listed."""
        tool = {
            "name": name,
            "description": self.description,
            "inputSchema": _listed(self.inputs),
        }
        return {**tool, "annotations": dict(self.annotations)} if self.annotations else tool


def _listed(schema: Schema) -> Schema:
    """Return a schema without limits and without null, which stands for an absent value."""
    shown = {key: value for key, value in schema.items() if key not in _UNLISTED}
    if isinstance(shown.get("type"), list):
        shown["type"] = shown["type"][0]
    if "properties" in shown:
        shown["properties"] = {name: _listed(part) for name, part in shown["properties"].items()}
    if "items" in shown:
        shown["items"] = _listed(shown["items"])
    return shown


def _words(text: str) -> str:
    return " ".join(text.split())


def _inputs(required: list[str], **properties: Any) -> Schema:
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": required} if required else schema


def _said(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description}


STATE: Schema = {"type": "string", "enum": [str(state) for state in State]}
TASK_ID: Schema = {"type": "string", "maxLength": 256}
CURSOR: Schema = {"type": ["string", "null"], "maxLength": 2048}
#: A cursor of any type, since one that means nothing is ignored.
HINT: Schema = {"type": ["string", "null", "boolean", "number", "array", "object"]}
KEY_OR_NULL: Schema = {"type": ["string", "null"], "minLength": 1, "maxLength": MAX_KEY_CHARS}
TAGS: Schema = {
    "type": ["array", "null"],
    "maxItems": MAX_TAGS,
    "items": {"type": "string", "minLength": 1, "maxLength": MAX_TAG_CHARS},
}


def _amount(kind: str, most: float | None) -> Schema:
    """Return the schema of an optional positive number."""
    return {"type": [kind, "null"], "exclusiveMinimum": 0, "maximum": most}


#: Properties of one task in `submit_task`.
ONE_TASK: Schema = {
    "tool_name": {"type": "string", "maxLength": 256},
    "inputs": _said({"type": "object"}, "Arguments of the tool"),
    "resources": _said(
        {
            **_inputs(
                [],
                resource_class=_said(KEY_OR_NULL, "Queue"),
                max_runtime_s=_amount("number", MOST_RESOURCES.max_runtime_s),
                cpu=_amount("number", MOST_RESOURCES.cpu),
                memory_mb=_amount("integer", MOST_RESOURCES.memory_mb),
                scratch_mb=_amount("integer", MOST_RESOURCES.scratch_mb),
            ),
            "type": ["object", "null"],
        },
        "Narrower limits",
    ),
    "ttl_s": _said(_amount("number", LONGEST_S), "How long the result is kept"),
    "idempotency_key": KEY_OR_NULL,
    "priority": _said(
        {"type": ["integer", "null"], "minimum": PRIORITIES[0], "maximum": PRIORITIES[-1]}, "Higher is first"
    ),
    "tags": TAGS,
}

#: Schema of each task in a batch.
ONE_OF_MANY = _inputs(["tool_name"], **ONE_TASK)

SCHEMAS: dict[str, TaskToolSchema] = {
    wire.SUBMIT_TASK: TaskToolSchema(
        _words("""
        Start a slow tool in the background, for example several at once. Returns a task_id; then call
        wait_for_task. A repeat with the same idempotency_key returns the same task.
        """),
        _inputs(
            [],
            **ONE_TASK,
            tasks=_said(
                {"type": "array", "minItems": 1, "maxItems": MOST_TASKS, "items": {"type": "object"}},
                "Several tasks, each with the fields above, in place of them",
            ),
        ),
        {},
    ),
    wire.GET_TASK_STATUS: TaskToolSchema(
        _words("""
        State, progress and time left of a task, without waiting. For its end or result call
        wait_for_task.
        """),
        _inputs(["task_id"], task_id=TASK_ID, cursor=_said(HINT, "From the last answer")),
    ),
    wire.WAIT_FOR_TASK: TaskToolSchema(
        _words("""
        Wait for a task, or several, and get the result or error. If the answer says that a task is not
        finished, call again with its cursor. Of several tasks you get what is new since the cursor.
        """),
        _inputs(
            [],
            task_id=TASK_ID,
            task_ids=_said(
                {"type": "array", "minItems": 1, "maxItems": MOST_TASKS, "items": TASK_ID},
                "Several, in place of task_id",
            ),
            **{
                "for": _said(
                    {"type": "string", "enum": ["any", "all"]}, "Until any (default) or all of task_ids end"
                )
            },
            cursor=_said(HINT, "From the last answer"),
            timeout_s=_said({"type": "number", "minimum": 0}, "Default: as long as your client can wait"),
        ),
    ),
    wire.GET_TASK_RESULT: TaskToolSchema(
        _words("""
        Result, error and files of a finished task, also again later. A long result is shown in part: read
        the rest by path, or by offset and length in bytes.
        """),
        _inputs(
            ["task_id"],
            task_id=TASK_ID,
            path=_said(
                {"type": ["string", "null"], "maxLength": LONGEST_PATH},
                "Part of the result: $.rows[10:20].name",
            ),
            offset={"type": ["integer", "null"], "minimum": 0, "maximum": FURTHEST},
            length={"type": ["integer", "null"], "minimum": 1, "maximum": MOST_BYTES},
        ),
    ),
    wire.TAIL_TASK_LOGS: TaskToolSchema(
        "What a task printed and logged, oldest first.",
        _inputs(
            ["task_id"],
            task_id=TASK_ID,
            cursor=_said(CURSOR, "next_cursor of the last answer"),
            limit=_said({"type": "integer", "minimum": 1}, "Lines, default 200"),
        ),
    ),
    wire.LIST_TASK_ARTIFACTS: TaskToolSchema(
        "Files that a task made so far, as resources and links.", _inputs(["task_id"], task_id=TASK_ID)
    ),
    wire.LIST_TASKS: TaskToolSchema(
        "Your tasks, newest first: for example to find one again, or see what runs.",
        _inputs(
            [],
            states={"type": ["array", "null"], "maxItems": 100, "items": STATE},
            tool_name=KEY_OR_NULL,
            tags_any=TAGS,
            submitted_after=_said({"type": ["string", "null"], "maxLength": 64}, "ISO 8601"),
            limit=_said({"type": "integer", "minimum": 1}, "Default 50"),
            cursor=_said(CURSOR, "next_cursor of the last answer"),
        ),
    ),
    wire.CANCEL_TASK: TaskToolSchema(
        "Stop a task. Harmless if it is finished or cancelled already.",
        _inputs(
            ["task_id"],
            task_id=TASK_ID,
            reason={"type": ["string", "null"], "minLength": 1, "maxLength": MAX_REASON_CHARS},
        ),
        {"idempotentHint": True},
    ),
    wire.ANSWER_TASK: TaskToolSchema(
        _words("""
        Answer a question of a task that is input_required, as wait_for_task shows it. Ask the user
        what you do not know. Then call wait_for_task.
        """),
        _inputs(
            ["task_id"],
            task_id=TASK_ID,
            question=_said(KEY_OR_NULL, "Its key, if there are several"),
            action=_said({"type": "string", "enum": list(get_args(Action))}, "Default accept"),
            content=_said({"type": ["object", "null"]}, "By the schema of the question"),
        ),
        {},
    ),
}
