"""References such as `$.user.name`, which stand for a value among the arguments or in the context."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import ReferenceNotFound

_REFERENCE = re.compile(r"\$((?:\.[^.\[\]]+|\[\d+\])+)")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")
#: A reference may lead to another one, but not for ever.
_LONGEST_CHAIN = 8


def is_reference(value: Any) -> bool:
    return isinstance(value, str) and _REFERENCE.fullmatch(value) is not None


def resolve_reference(reference: str, arguments: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
    """The value that a reference leads to: in the arguments, or else in the context.

    Steps go into objects by name and into lists by number: `$.files[0].name`. Raises
    ReferenceNotFound, also when references lead round in a circle.
    """
    value: Any = reference
    for _ in range(_LONGEST_CHAIN):
        value = _lookup(value, arguments, context)
        if not is_reference(value):
            return value
    raise ReferenceNotFound(reference=reference)


def resolve_context(arguments: Mapping[str, Any], context: Mapping[str, Any]) -> dict[str, Any]:
    """The context with every reference in it, however deep, replaced by what it leads to.

    One that leads to nothing stays as it is.
    """

    def resolved(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: resolved(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [resolved(inner) for inner in value]
        if is_reference(value):
            try:
                return resolve_reference(value, arguments, context)
            except ReferenceNotFound:
                return value
        return value

    return {key: resolved(value) for key, value in context.items()}


def _lookup(reference: str, arguments: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
    whole = _REFERENCE.fullmatch(reference)
    if whole is None:
        raise ReferenceNotFound(reference=reference)
    steps = [name or int(number) for name, number in _STEP.findall(whole[1])]
    for source in (arguments, context):
        found, value = _walk(source, steps)
        if found:
            return value
    raise ReferenceNotFound(reference=reference)


def _walk(value: Any, steps: list[str | int]) -> tuple[bool, Any]:
    for step in steps:
        if isinstance(value, Mapping) and isinstance(step, str):
            if step not in value:
                return False, None
            value = value[step]
        elif isinstance(value, Sequence) and not isinstance(value, str):
            place = int(step) if isinstance(step, int) or step.isdecimal() else len(value)
            if place >= len(value):
                return False, None
            value = value[place]
        else:
            return False, None
    return True, value
