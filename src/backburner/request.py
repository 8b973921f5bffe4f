"""Checking what callers give: each check gives the value back, or raises a kind of InvalidRequest."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

from . import json_text
from .errors import InvalidCursor, InvalidRequest, TaskNotFound, TooLarge
from .lifecycle import State
from .task import is_task_id

MAX_KEY_CHARS, MAX_REASON_CHARS = 256, 1000
_MAX_TAGS, _MAX_TAG_CHARS = 32, 256
_PRIORITIES = range(-1000, 1001)
_LOG_CURSOR_FORM = re.compile(r"log_([0-9]{9,15})")
_LATEST_MS = 253_402_300_800_000  # the year 10000
_LONGEST_WAIT_S = 86_400 * 365.0


def check_id(task_id: str) -> str:
    if not isinstance(task_id, str) or not is_task_id(task_id):
        raise TaskNotFound(task_id=task_id if isinstance(task_id, str) and len(task_id) <= 64 else "…")
    return task_id


def check_text(name: str, value: Any, longest: int) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidRequest(reason=f"{name} must be text that is not empty")
    if len(value) > longest:
        raise TooLarge(what=name, size=len(value), limit=longest)
    json_text.encode(value, name)
    return value


def check_optional(name: str, value: str | None) -> str | None:
    return None if value is None else check_text(name, value, MAX_KEY_CHARS)


def check_priority(priority: int) -> int:
    if isinstance(priority, bool) or not isinstance(priority, int) or priority not in _PRIORITIES:
        reason = (
            f"priority must be a whole number from {_PRIORITIES[0]} to {_PRIORITIES[-1]}, not {priority!r}"
        )
        raise InvalidRequest(reason=reason)
    return priority


def check_tags(tags: Sequence[str]) -> tuple[str, ...]:
    if isinstance(tags, str) or not isinstance(tags, Sequence):
        raise InvalidRequest(reason="tags must be a list of texts")
    if len(tags) > _MAX_TAGS:
        raise InvalidRequest(reason=f"a task has at most {_MAX_TAGS} tags, not {len(tags)}")
    return tuple(dict.fromkeys(check_text("tag", tag, _MAX_TAG_CHARS) for tag in tags))


def check_time(name: str, ms: int | None) -> int | None:
    if ms is None or (isinstance(ms, int) and not isinstance(ms, bool) and 0 <= ms < _LATEST_MS):
        return ms
    raise InvalidRequest(reason=f"{name} must be a time in milliseconds since 1970, not {ms!r}")


def deadline(timeout_s: float) -> float:
    """When a wait of so long is over, by the monotonic clock. Raises InvalidRequest."""
    if isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool) and timeout_s >= 0:
        return time.monotonic() + min(timeout_s, _LONGEST_WAIT_S)
    raise InvalidRequest(reason=f"timeout_s must be a number of seconds from 0 on, not {timeout_s!r}")


def check_states(states: Sequence[str]) -> frozenset[State]:
    try:
        return frozenset(State(state) for state in states)
    except (ValueError, TypeError) as error:
        raise InvalidRequest(reason=f"{error}; the states are {', '.join(State)}") from None


def log_seq(cursor: str) -> int:
    match = _LOG_CURSOR_FORM.fullmatch(cursor) if isinstance(cursor, str) else None
    if match is None:
        raise InvalidCursor
    return int(match[1])
