"""References such as `$.user.name`, which stand for a value among the arguments or in the context."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import Any

from ...errors import ReferenceNotFound

_REFERENCE = re.compile(r"\$(\.[^.\[\]]+|\[\d+\])+")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")
#: A reference may lead to another one, but not for ever.
_LONGEST_CHAIN = 8


def is_reference(value: Any) -> bool:
    return isinstance(value, str) and _REFERENCE.fullmatch(value) is not None


def has_reference(value: Any) -> bool:
    """Return whether a value is a reference, or has one in it."""
    if isinstance(value, Mapping):
        return any(map(has_reference, value.values()))
    return any(map(has_reference, value)) if isinstance(value, list | tuple) else is_reference(value)


def resolve_argument_reference(
    reference: str, arguments: Mapping[str, Any], context: Mapping[str, Any]
) -> Any:
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
            with contextlib.suppress(ReferenceNotFound):
                return resolve_argument_reference(value, arguments, context)
        return value

    return {key: resolved(value) for key, value in context.items()}


def _lookup(reference: str, arguments: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
    if is_reference(reference):
        for source in (arguments, context):
            # ValueError: a number with more digits than `int` reads.
            with contextlib.suppress(LookupError, ValueError):
                return _walk(source, reference)
    raise ReferenceNotFound(reference=reference)


def _walk(value: Any, reference: str) -> Any:
    for name, number in _STEP.findall(reference):
        place = name or number
        if isinstance(value, Mapping) and name:
            value = value[name]
        elif isinstance(value, list | tuple) and place.isdecimal():
            value = value[int(place)]
        else:
            raise LookupError(reference)
    return value
