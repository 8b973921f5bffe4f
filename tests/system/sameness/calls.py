"""The calls that are made of each server, and how what came of them is compared."""

import json
import re
from typing import Any

Call = tuple[str, str, dict[str, Any]]

_ORDER = {"items": [{"name": "x"}, {"name": "y", "count": "3"}]}
_TIMES = {"day": "2026-07-28", "at": "2026-07-28T10:00:00Z", "span": "PT90S"}
_ARGUMENTS: list[Call] = [
    ("the least", "add", {"a": 1}),
    ("a number as text", "add", {"a": "1000"}),
    ("a whole float", "add", {"a": 1.0}),
    ("no number", "add", {"a": "x"}),
    ("no arguments", "add", {}),
    ("one too many", "add", {"a": 1, "extra": 5}),
    ("null", "add", {"a": None}),
    ("kinds as text", "kinds", {"flag": "true", "ratio": "0.5"}),
    ("null where it may be", "kinds", {"flag": False, "ratio": 1, "name": None}),
    ("a model", "order", {"order": _ORDER}),
    ("a model as text", "order", {"order": json.dumps(_ORDER)}),
    ("a broken model", "order", {"order": {"items": [{"count": 1}]}}),
    ("an enum", "colour", {"colour": "red"}),
    ("none of the enum", "colour", {"colour": "blue"}),
    ("a union: number", "either", {"value": 1}),
    ("a union: text", "either", {"value": "1"}),
    ("a union: list", "either", {"value": [1, "2"]}),
    ("times", "times", _TIMES),
    ("no time", "times", {**_TIMES, "day": "yesterday"}),
    ("a typed dict", "entry", {"entry": {"key": "k", "value": "7"}}),
    ("too large", "limited", {"n": 11}),
    ("bytes", "hidden", {"data": "abc"}),
]
_OTHERS = """
text empty_text number truth nothing numbers empty_list mapping model models point typed untyped perhaps
image audio link embedded mixed whole says_no
logs counted endless client headers credentials request_meta state reads depends whoami
fails crashes custom protocol breaks_a_model fails_late unwritable slow missing registers late
"""
DECORATED: list[Call] = [*_ARGUMENTS, *((name, name, {}) for name in _OTHERS.split())]
_DEPENDS = ("depends", "depends", {"name": "Ada"})
DECORATED = [_DEPENDS if call[0] == "depends" else call for call in DECORATED]

_LOWLEVEL = """
structured empty says_no raises protocol logs counted headers client state whoami missing
"""

CALLS: dict[str, list[Call]] = {
    "mcpserver": DECORATED,
    "fastmcp": [
        *DECORATED,
        *((name, name, {}) for name in ("marked", "safe_headers", "times_out", "allowed", "forbidden")),
    ],
    "lowlevel": [
        ("the least", "echo", {"a": 1}),
        ("a number as text", "echo", {"a": "1000"}),
        ("no arguments", "echo", {}),
        *((name, name, {}) for name in _LOWLEVEL.split()),
    ],
}

#: The calls that come to something else when Backburner is attached, and where the guide tells of it.
DIFFERENT = {"credentials": "`Authorization`"}
#: And those that do so as a task.
DIFFERENT_AS_TASK = {
    **DIFFERENT,
    "missing": "no task can be asked for",
    "forbidden": "no task can be asked for",
    "registers": "no task can be asked for",
    "late": "no task can be asked for",
}

#: What a client makes of tasks itself: FastMCP's has a result for one that failed with an error of JSON-RPC,
#: and ext-tasks sends no `_meta` of its user's.
OF_CLIENT = {
    "fastmcp_4": ("protocol", "raises"),
    "typescript_2": ("request_meta",),
}

#: What is ours in the `_meta` of a result, on top of what the tool said; and what belongs to an answer alone.
_OURS = ("progressToken", "duration", "io.modelcontextprotocol/related-task")
_OF_THE_ANSWER = "io.modelcontextprotocol/serverInfo"
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


def comparable(outcome: dict[str, Any], *, as_task: bool) -> dict[str, Any]:
    """What came of a call, without what is ours and what no two calls have in common."""
    outcome = json.loads(_ADDRESS.sub("0x", json.dumps(outcome)))
    result = outcome.get("result")
    if isinstance(result, dict):
        meta = {key: value for key, value in (result.pop("_meta", None) or {}).items() if key not in _OURS}
        if as_task:
            result.pop("resultType", None)
            meta.pop(_OF_THE_ANSWER, None)
        outcome["result"] = {**result, "_meta": meta}
    if as_task:  # what is heard of a task comes by other ways
        outcome = {key: value for key, value in outcome.items() if key not in ("progress", "logs")}
    return outcome
