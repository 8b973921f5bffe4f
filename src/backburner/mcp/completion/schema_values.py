"""Values that a JSON schema allows, as far as it says which: for people to choose from."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import ReferenceNotFound
from .number_range import numbers
from .patterns import continued, pattern_examples
from .references import is_reference, resolve_argument_reference
from .schema_document import SAYS_NOTHING, SchemaDocument, without

_DEEPEST = 8
#: A schema that refers to itself in many places offers no more than this many parts of itself.
_MOST_PARTS = 500


@dataclass(frozen=True)
class Found:
    """What a schema offers.

    `choices` are all its values, when it lists them; they are valid. `values` are some of its values
    otherwise, still to be checked. `parts` are names of properties and items of a list; they are valid
    where they stand.
    """

    choices: list[Any] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    parts: list[Any] = field(default_factory=list)

    def add(self, other: Found) -> None:
        """Add what a branch offers. What the branch lists, the schema around it may still forbid."""
        self.values.extend([*other.choices, *other.values])
        self.parts.extend(other.parts)


class SchemaValues:
    """Finds the values of one document's schemas.

    `partial` is what has been typed; `arguments` and `context` are what `$.` references lead to.
    """

    def __init__(
        self,
        document: SchemaDocument,
        partial: str,
        arguments: Mapping[str, Any],
        context: Mapping[str, Any],
    ) -> None:
        self._document = document
        self._partial = partial
        self._arguments = arguments
        self._context = context
        self._parts_seen = 0

    def find(self, schema: Any, depth: int = 0) -> Found:
        """All that the schema offers."""
        schema = self._document.resolve(schema)
        found = Found()
        self._parts_seen += 1
        if not isinstance(schema, Mapping) or depth > _DEEPEST or self._parts_seen > _MOST_PARTS:
            return found
        self._document.check(schema)
        choices, keyword = listed(schema)
        if keyword:
            return self._listed(schema, choices, keyword)
        found.values.extend(self._annotated(schema))
        for keyword in ("anyOf", "oneOf", "allOf"):
            for branch in _list(schema.get(keyword)):
                found.add(self.find(branch, depth + 1))
        for keyword in ("then", "else"):
            found.add(self.find(schema.get(keyword), depth + 1))
        kinds = schema.get("type")
        for kind in kinds if isinstance(kinds, list) else [kinds]:
            found.values.extend(self._of_kind(kind, schema))
            found.parts.extend(self._parts(kind, schema, depth))
        return found

    def _listed(self, schema: Mapping[str, Any], choices: list[Any], keyword: str) -> Found:
        """The values that `keyword` lists, the default first. Only what else the schema says is checked."""
        rest = without(schema, keyword, *SAYS_NOTHING)
        if set(rest) == {"type"}:  # the usual case, made quick
            choices = [choice for choice in choices if self._document.is_a(choice, rest["type"])]
        elif rest:
            choices = [choice for choice in choices if self._document.valid(choice, rest)]
        offered = {as_json(choice) for choice in choices}
        first = [value for value in self._annotated(schema) if as_json(value) in offered]
        return Found(choices=[*first, *choices])

    def _annotated(self, schema: Mapping[str, Any]) -> Iterator[Any]:
        """`default` and `examples`; a reference among them stands for what it leads to, if anything."""
        given = [schema["default"]] if "default" in schema else []
        for value in [*given, *_list(schema.get("examples"))]:
            if not is_reference(value):
                yield value
                continue
            with contextlib.suppress(ReferenceNotFound):
                yield resolve_argument_reference(value, self._arguments, self._context)

    def _of_kind(self, kind: Any, schema: Mapping[str, Any]) -> list[Any]:
        """Whole values of one type. Any type is meant by None; most offer nothing then."""
        match kind:
            case "string" | None:
                return self._matching(schema)
            case "integer" | "number":
                return list(numbers(schema, self._partial, whole=kind == "integer"))
            case "boolean":
                return [True, False]
            case "null":
                return [None]
            case _:
                return []

    def _matching(self, schema: Mapping[str, Any]) -> list[str]:
        """Texts that match the schema's pattern, if it has one; first those that go on from what is typed."""
        pattern = schema.get("pattern")
        if not isinstance(pattern, str):
            return []
        examples = pattern_examples(
            pattern,
            min_length=_count(schema.get("minLength")) or 0,
            max_length=_count(schema.get("maxLength")),
        )
        begun = continued(pattern, self._partial, examples) if self._partial else []
        return [*begun, *examples]

    def _parts(self, kind: Any, schema: Mapping[str, Any], depth: int) -> Iterator[Any]:
        """The names of an object's properties, and the items of a list, each checked by its own schema."""
        properties = schema.get("properties")
        if kind in ("object", None) and isinstance(properties, Mapping):
            names = schema.get("propertyNames", True)
            yield from (name for name in properties if names is True or self._document.valid(name, names))
        if kind in ("array", None):
            for items in (*_list(schema.get("prefixItems")), schema.get("items")):
                found = self.find(items, depth + 1)
                yield from found.choices
                yield from (value for value in found.values if self._document.valid(value, items))
                yield from found.parts


def listed(schema: Any) -> tuple[list[Any], str]:
    """The values, when the schema itself lists them, and the keyword by which it does; else `""`.

    A list is `const`, `enum`, or the branches of `oneOf` or `anyOf` when each is a `const` with a title.
    """
    if not isinstance(schema, Mapping):
        return [], ""
    if "const" in schema:
        return [schema["const"]], "const"
    if isinstance(schema.get("enum"), list):
        return schema["enum"], "enum"
    for keyword in ("oneOf", "anyOf"):
        branches = _list(schema.get(keyword))
        if branches and all(_is_choice(branch) for branch in branches):
            values = [branch["const"] for branch in branches]
            # A value that stands twice in `oneOf` is not valid.
            if keyword == "anyOf" or len({as_json(value) for value in values}) == len(values):
                return values, keyword
    return [], ""


def _is_choice(branch: Any) -> bool:
    return isinstance(branch, Mapping) and "const" in branch and set(branch) <= SAYS_NOTHING | {"const"}


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str)


def _count(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
