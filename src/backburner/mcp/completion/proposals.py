"""Completion values for an argument, from its schema, the caller's history and the author.

All functions are pure. Values are text: a string stands for itself, other values for their JSON.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...core.schema import within_bounds
from ...errors import CompletionFailed, ReferenceNotFound
from .values import (
    SchemaDocument,
    SchemaValues,
    as_json,
    has_reference,
    is_reference,
    listed,
    resolve_argument_reference,
    resolve_context,
)

#: The protocol's own limit.
MOST_VALUES = 100
#: CPU time limit of a completion: a user is typing.
_MOST_S = 1.0
#: Most subschemas searched for a property.
_MOST_PARTS = 500


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A request for completion.

    `partial_argument` is the typed text, `argument` its property, or None for the whole schema. `history` has
    the caller's earlier values, latest first; `suggested` those of the author.
    """

    partial_argument: str = ""
    argument: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)
    history: Sequence[Any] = ()
    suggested: Sequence[Any] = ()


@dataclass(frozen=True, slots=True)
class Completion:
    """At most 100 values; `total` counts all candidates."""

    values: tuple[str, ...]
    total: int

    @property
    def has_more(self) -> bool:
        return self.total > len(self.values)

    def to_dict(self) -> dict[str, Any]:
        return {"values": list(self.values), "total": self.total, "hasMore": self.has_more}


def complete(tool_name: str, request: CompletionRequest | Mapping[str, Any], schema: Any) -> Completion:
    """Return valid completions, best first.

    The caller's earlier values come before the author's suggestions, and these before the schema's. A typed
    reference stands for its target. A request may be a dict of its fields. Raises CompletionFailed, naming
    the tool, for an invalid schema.
    """
    asked = request if isinstance(request, CompletionRequest) else CompletionRequest(**request)
    try:
        with within_bounds(schema, _MOST_S):
            return _complete(asked, schema)
    except CompletionFailed as error:
        raise CompletionFailed(reason=f"{tool_name}: {error.details['reason']}") from None


def generate_completions_from_schema(
    schema: Any, partial_argument: str = "", context: Mapping[str, Any] | None = None
) -> list[str]:
    """Return a schema's values for the typed text. Raises CompletionFailed."""
    request = CompletionRequest(partial_argument, context=context or {})
    return list(complete("schema", request, schema).values)


def _complete(request: CompletionRequest, schema: Any) -> Completion:
    document = SchemaDocument(schema)
    document.check(schema)
    context = resolve_context(request.arguments, request.context)
    partial = _dereferenced(request.partial_argument, request.arguments, context)
    part = schema if request.argument is None else property_schema(document, schema, request.argument)
    found = SchemaValues(document, partial, request.arguments, context).find(part)
    proposals = _Proposals(document, part, found.choices)
    if not found.choices:
        typed = [partial] if partial != request.partial_argument else []
        named = _under_its_name(request.argument, context)
        told = [*request.history, *request.suggested, *named]
        proposals.offer([*(value for value in told if not has_reference(value)), *typed, *found.values])
    taken = request.arguments if request.argument is None else {}
    proposals.offer_parts(name for name in found.parts if as_text(name) not in taken)
    history = [as_text(value) for value in request.history]
    ranked = filter_completions(proposals.texts, partial, history, closed=bool(found.choices))
    return proposals.checked(ranked)


def property_schema(document: SchemaDocument, schema: Any, name: str) -> Any:
    """Return the schema of one property, also inside a branch; unknown ones allow anything."""
    parts, seen, others = [schema], 0, True
    while parts and seen < _MOST_PARTS:  # a schema may be recursive
        part, seen = document.resolve(parts.pop(0)), seen + 1
        document.check(part)
        if not isinstance(part, Mapping):
            continue
        properties = part.get("properties")
        if isinstance(properties, Mapping) and name in properties:
            return properties[name]
        if others is True:
            others = part.get("additionalProperties", True)
        for keyword in ("allOf", "anyOf", "oneOf"):
            parts += part.get(keyword, [])
    return others


def argument_to_complete(partial: str, arguments: Mapping[str, Any], schema: Any) -> str | None:
    """Return the property that a bare text belongs to; None for the object itself.

    It is the argument with that value; or else, unless the text may be a name, the first free property that
    lists a value beginning with it.
    """
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping) or not partial:
        return None
    for name, value in arguments.items():
        if name in properties and as_text(value) == partial:
            return name
    typed = partial.casefold()
    if any(typed in name.casefold() for name in properties):
        return None
    document = SchemaDocument(schema)
    for name, part in properties.items():
        choices, _ = listed(document.resolve(part))
        if name not in arguments and any(as_text(one).casefold().startswith(typed) for one in choices):
            return str(name)
    return None


def filter_completions(
    completions: Iterable[str], partial_argument: str, history: Sequence[str] = (), *, closed: bool = False
) -> list[str]:
    """Return the texts that begin with, or then contain, the typed text.

    Within these the most used come first, then the given order. If a value of a `closed` list is typed in
    full, all others follow it.
    """
    typed = partial_argument.casefold()
    used = Counter(history)
    texts = sorted(dict.fromkeys(completions), key=lambda text: -used[text])
    if not typed:
        return texts
    folded = {text: text.casefold() for text in texts}
    whole = [text for text in texts if folded[text] == typed]
    begins = [text for text in texts if folded[text].startswith(typed) and folded[text] != typed]
    contains = [text for text in texts if typed in folded[text] and not folded[text].startswith(typed)]
    others = [text for text in texts if typed not in folded[text]] if whole and closed else []
    return [*whole, *begins, *contains, *others]


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else as_json(value)


class _Proposals:
    """Proposed texts in order, and the values that are still to be validated."""

    def __init__(self, document: SchemaDocument, schema: Any, choices: Iterable[Any]) -> None:
        self._document = document
        self._schema = schema
        self._unchecked: dict[str, list[Any]] = {}
        self.texts: dict[str, None] = {as_text(choice): None for choice in choices}

    def offer(self, values: Iterable[Any]) -> None:
        """Add values to be validated."""
        for value in values:
            text = as_text(value)
            if text not in self.texts:
                self.texts[text] = None
                self._unchecked[text] = [value]
            elif text in self._unchecked:
                self._unchecked[text].append(value)

    def offer_parts(self, parts: Iterable[Any]) -> None:
        """Add names and items, which are valid already."""
        for part in parts:
            self.texts[as_text(part)] = None
            self._unchecked.pop(as_text(part), None)

    def checked(self, ranked: Sequence[str]) -> Completion:
        """Return the first valid texts; the rest are only counted."""
        good: list[str] = []
        refused = 0
        for text in ranked:
            if len(good) == MOST_VALUES:
                break
            if self._is_good(text):
                good.append(text)
            else:
                refused += 1
        return Completion(tuple(good), len(ranked) - refused)

    def _is_good(self, text: str) -> bool:
        if text not in self._unchecked:
            return True
        values = [*self._unchecked[text], *_readings(text)]
        return any(self._document.valid(value, self._schema) for value in values)


def _readings(text: str) -> list[Any]:
    """Return the values that a text may stand for: itself, or its JSON."""
    try:
        return [text, json.loads(text)]
    except ValueError:
        return [text]


def _under_its_name(argument: str | None, context: Mapping[str, Any]) -> list[Any]:
    """Return the context's values under the argument's name."""
    if argument is None or argument not in context:
        return []
    value = context[argument]
    return value if isinstance(value, list) else [value]


def _dereferenced(partial: str, arguments: Mapping[str, Any], context: Mapping[str, Any]) -> str:
    if is_reference(partial):
        with contextlib.suppress(ReferenceNotFound):
            return as_text(resolve_argument_reference(partial, arguments, context))
    return partial
