"""Submission of a new task: conversion to a stored task, and to a message between processes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from . import json_text
from .lifecycle import State
from .task import NewTask, SubmittedFields, Task


class Submission(Struct, frozen=True):
    """Result of a submission. `position` is the task's place in its queue, from 1."""

    task: Task
    created: bool
    position: int | None


def as_submitted(new: NewTask, seq: int, leased: Mapping[str, Any] = MappingProxyType({})) -> Task:
    """Return the stored task that `new` becomes; `leased` holds the fields that a lease sets at once."""
    given = {name: getattr(new, name) for name in SubmittedFields.__struct_fields__}
    given |= {
        "seq": seq,
        "state": State.QUEUED,
        "updated_at": new.submitted_at,
        "max_attempts": new.retry.max_attempts,
        "inputs": json_text.decode(new.inputs_json),
        "expires_at": new.expires_at,
    }
    return Task(**{**given, **leased})
