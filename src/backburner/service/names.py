"""Short names for what has long ones: a task by the beginning of its id, an owner by a simple name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Protocol

from ..core.task import beginning_of_id, is_task_id
from ..errors import AmbiguousOwner, AmbiguousTask, TaskNotFound


class TaskIds(Protocol):
    """Looks up task ids by their beginning: a store, or a task service."""

    def ids(self, beginning: str, owner: str | None = None, limit: int = 10) -> list[str]: ...


_CANDIDATES = 10
#: `tsk_`, the time, and so much chance that a task that comes later hardly ever begins so too.
SHORT_CHARS = 18
_LONGEST_OWNER = 200


def whole_id(known: TaskIds, text: str, owner: str | None) -> str:
    """The id of the one task of `owner` that begins so, with `tsk_` or without; a whole id as it is.

    Raises TaskNotFound, and AmbiguousTask, which names the candidates.
    """
    if is_task_id(text):
        return text
    beginning = beginning_of_id(text)
    found = [] if beginning is None else known.ids(beginning, owner, _CANDIDATES + 1)
    if not found:
        raise TaskNotFound(task_id=text if len(text) <= 64 else "…")
    if len(found) > 1:
        named = [*found[:_CANDIDATES], *(["…"] if len(found) > _CANDIDATES else [])]
        raise AmbiguousTask(beginning=text, candidates=", ".join(named))
    return found[0]


def short_id(known: TaskIds, task_id: str) -> str:
    """The shortest beginning of an id, from a sensible length on, that no other id has now."""
    for length in range(SHORT_CHARS, len(task_id)):
        if len(known.ids(task_id[:length], None, 2)) < 2:
            return task_id[:length]
    return task_id


def owner_of(client_id: str, issuer: str | None, subject: str | None) -> str:
    """The owner that a token stands for, as stores have it."""
    text = json.dumps([client_id, issuer, subject], ensure_ascii=False, separators=(",", ":"))
    return text if len(text) <= _LONGEST_OWNER else "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def owner_name(owner: str) -> str:
    """Return the display name of an owner: its token's subject, or else its client."""
    client_id, subject = _of_token(owner)
    return subject or client_id or owner


def whole_owner(name: str, known: Iterable[str]) -> str:
    """The owner among those known whom a name means, else the name. Raises AmbiguousOwner."""
    owners = dict.fromkeys(known)
    if name in owners:
        return name
    found = [owner for owner in owners if name in _of_token(owner)]
    if len(found) > 1:
        raise AmbiguousOwner(name=name, candidates=", ".join(found))
    return found[0] if found else name


def _of_token(owner: str) -> tuple[str, str]:
    """The client and the subject of an owner that a token stands for; empty ones of any other."""
    try:
        client_id, _, subject = json.loads(owner) if owner.startswith("[") else ("", "", "")
    except ValueError:
        return "", ""
    return str(client_id or ""), str(subject or "")
