"""Requests of callers, and the checks of their values.

Each check returns the value, or raises a subclass of InvalidRequest; for a malformed id, TaskNotFound.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

from ..errors import InvalidCursor, InvalidRequest, OverLimit, TaskNotFound, TooLarge, UnknownQueue
from . import json_text
from .lifecycle import State
from .task import RequestedFields, Resources, beginning_of_id, is_task_id
from .times import LONGEST_S

MAX_KEY_CHARS, MAX_REASON_CHARS = 256, 1000
#: So long a tracestate is handed on at least, W3C says.
MAX_TRACESTATE_CHARS = 512
MAX_TAGS, MAX_TAG_CHARS = 32, 256
PRIORITIES = range(-1000, 1001)
#: What nobody can ask for more of: numbers that every clock, kernel and store can still add up.
MOST_RESOURCES = Resources(max_runtime_s=LONGEST_S, cpu=65_536, memory_mb=1 << 30, scratch_mb=1 << 30)
_NOTHING = Resources()
_LOG_CURSOR_FORM = re.compile(r"log_([0-9]{9,15})")
_LATEST_MS = 253_402_300_800_000  # the year 10000
_LONGEST_WAIT_S = 86_400 * 365.0


class TaskRequest(RequestedFields, frozen=True):
    """An unchecked request for a task. None leaves the choice to the tool or the settings.

    `meta` is the caller's own. `webhook` has the `url` that is notified of the end.
    """

    tool_name: str
    inputs: Mapping[str, Any]
    queue: str | None = None
    tags: Sequence[str] = ()
    resources: Resources | None = None
    meta: Mapping[str, Any] | None = None
    webhook: Mapping[str, Any] | None = None


# -- checks ----------------------------------------------------------------------------------------


def check_id(task_id: str) -> str:
    if not isinstance(task_id, str) or not is_task_id(task_id):
        raise TaskNotFound(task_id=task_id if isinstance(task_id, str) and len(task_id) <= 64 else "…")
    return task_id


def check_beginning(text: str) -> str:
    """Return the full prefix of task ids that `text` abbreviates. Raises InvalidRequest."""
    beginning = beginning_of_id(text) if isinstance(text, str) else None
    if beginning is None:
        raise InvalidRequest(reason=f"no task id begins with {_shown(text)}; they look like tsk_01J8WQ6JY7…")
    return beginning


def check_text(name: str, value: Any, longest: int) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidRequest(reason=f"{name} must be text that is not empty")
    if len(value) > longest:
        raise TooLarge(what=name, size=len(value), limit=longest)
    json_text.encode(value, name)
    return value


def check_size(what: str, text: str, longest_bytes: int) -> str:
    size = len(text.encode())
    if size > longest_bytes:
        raise TooLarge(what=what, size=size, limit=longest_bytes)
    return text


def check_optional(name: str, value: str | None) -> str | None:
    return None if value is None else check_text(name, value, MAX_KEY_CHARS)


def check_tracestate(tracestate: str | None) -> str | None:
    return None if tracestate is None else check_text("tracestate", tracestate, MAX_TRACESTATE_CHARS)


def check_priority(priority: int) -> int:
    if isinstance(priority, bool) or not isinstance(priority, int) or priority not in PRIORITIES:
        allowed = f"from {PRIORITIES[0]} to {PRIORITIES[-1]}"
        raise InvalidRequest(reason=f"priority must be a whole number {allowed}, not {_shown(priority)}")
    return priority


def check_tags(tags: Sequence[str]) -> tuple[str, ...]:
    if isinstance(tags, str) or not isinstance(tags, Sequence):
        raise InvalidRequest(reason="tags must be a list of texts")
    if len(tags) > MAX_TAGS:
        raise InvalidRequest(reason=f"a task has at most {MAX_TAGS} tags, not {len(tags)}")
    return tuple(dict.fromkeys(check_text("tag", tag, MAX_TAG_CHARS) for tag in tags))


def check_queue(queue: str, known: Collection[str]) -> str:
    if not isinstance(queue, str) or queue not in known:
        raise UnknownQueue(queue=_shown(queue), known=", ".join(known))
    return queue


def check_ttl(ttl_s: float | None, default_s: float, longest_s: float) -> float:
    if ttl_s is None:
        return min(default_s, LONGEST_S)
    if not isinstance(ttl_s, int | float) or isinstance(ttl_s, bool) or not ttl_s > 0:
        raise InvalidRequest(reason=f"ttl_s must be a number of seconds above 0, not {_shown(ttl_s)}")
    return float(min(ttl_s, longest_s))


def check_resources(asked: Resources, tool_name: str, tool: Resources, operator: Resources) -> Resources:
    """Return the requested resources, completed by the limits of the tool and the operator.

    Raises OverLimit for a request above a limit.
    """
    if asked == _NOTHING:
        return least_resources(tool, operator)
    for name in Resources.__struct_fields__:
        value, most = getattr(asked, name), getattr(MOST_RESOURCES, name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
            reason = f"resources.{name} must be a number above 0 and at most {most:.0f}, not {_shown(value)}"
            raise InvalidRequest(reason=reason)
        setting = f"limits.max_{name.removeprefix('max_')}"
        for whose, limits in ((f"the tool {tool_name}", tool), (f"the operator ({setting})", operator)):
            limit = getattr(limits, name)
            if limit is not None and value > limit:
                raise OverLimit(name=f"resources.{name}", asked=value, limit=limit, whose=whose)
    return least_resources(asked, tool, operator)


@lru_cache(maxsize=256)  # nearly all callers ask for nothing, and of few tools
def least_resources(*limits: Resources) -> Resources:
    """The least limit of each kind that any of them names."""

    def least(name: str) -> Any:
        return min((value for one in limits if (value := getattr(one, name)) is not None), default=None)

    return Resources(**{name: least(name) for name in Resources.__struct_fields__})


def check_limit(limit: int, most: int) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= most:
        raise InvalidRequest(reason=f"limit must be a whole number from 1 to {most}, not {_shown(limit)}")
    return limit


def check_time(name: str, ms: int | None) -> int | None:
    if ms is None or (isinstance(ms, int) and not isinstance(ms, bool) and 0 <= ms < _LATEST_MS):
        return ms
    raise InvalidRequest(reason=f"{name} must be a time in milliseconds since 1970, not {_shown(ms)}")


def deadline(timeout_s: float) -> float:
    """Return the end of a wait of `timeout_s`, by the monotonic clock. Raises InvalidRequest."""
    if isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool) and timeout_s >= 0:
        return time.monotonic() + min(timeout_s, _LONGEST_WAIT_S)
    raise InvalidRequest(reason=f"timeout_s must be a number of seconds from 0 on, not {_shown(timeout_s)}")


def check_states(states: Sequence[str]) -> frozenset[State]:
    try:
        return frozenset(State(state) for state in states)
    except (ValueError, TypeError) as error:
        raise InvalidRequest(reason=f"{error}; the states are {', '.join(State)}") from None


def _shown(value: Any) -> str:
    """A value of any type and size, in a few characters."""
    if isinstance(value, int) and abs(value) > 10**50:
        return "a number of more than fifty digits"
    return str(value)[:50] if isinstance(value, str) else repr(value)[:50]


def log_cursor(seq: int) -> str:
    """Return the cursor for the lines after the line `seq`."""
    return f"log_{seq:09d}"


def log_seq(cursor: str) -> int:
    """The number of the line that `log_cursor` named."""
    match = _LOG_CURSOR_FORM.fullmatch(cursor) if isinstance(cursor, str) else None
    if match is None:
        raise InvalidCursor
    return int(match[1])
