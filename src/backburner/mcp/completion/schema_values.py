"""Values that a JSON schema allows, as far as it says which: for people to choose from."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import Any

from jsonschema.protocols import Validator
from jsonschema.validators import extend, validator_for

from ...errors import CompletionFailed, ReferenceNotFound
from .patterns import continued, matches, pattern_examples
from .references import is_reference, resolve_reference

_DEEPEST = 8
#: A schema that refers to itself in many places offers no more than this many parts of itself.
_MOST_STEPS = 500
#: A range with fewer numbers is offered whole.
_FEW = 20
#: Keywords that say nothing about which values there are.
_SAYS_NOTHING = {"title", "description", "default", "examples", "deprecated", "$comment"}


@dataclass(frozen=True)
class Found:
    """What a schema offers: whole values of it, and texts for its parts (property names, items of a list).

    `choices` are the whole values when the schema lists them, so that they need no further check.
    """

    choices: list[Any] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    parts: list[Any] = field(default_factory=list)

    def add(self, other: Found) -> None:
        # What one branch lists, the schema around it may still forbid.
        self.values.extend([*other.choices, *other.values])
        self.parts.extend(other.parts)


class SchemaValues:
    """The values of a tool's schema. `root` is where its references lead to.

    `partial` is what has been typed; `arguments` and `context` are what `$.` references lead to.
    """

    def __init__(
        self, root: Any, partial: str, arguments: Mapping[str, Any], context: Mapping[str, Any]
    ) -> None:
        if not isinstance(root, Mapping | bool):
            raise CompletionFailed(reason=f"a schema is an object, not {type(root).__name__}")
        self._root = root
        self._partial = partial
        self._arguments = arguments
        self._context = context
        self._steps = 0

    @cached_property
    def _validator(self) -> Validator:
        kind = validator_for(self._root if isinstance(self._root, Mapping) else {})
        # The validator's own check of a pattern has no bound on its time.
        bounded: Any = extend(kind, {"pattern": _check_pattern})  # type: ignore[no-untyped-call]
        validator: Validator = bounded(self._root)
        return validator

    def valid(self, value: Any, schema: Any) -> bool:
        """Whether the schema allows the value. Not when it cannot be said, as with a broken schema."""
        try:
            return bool(self._validator.evolve(schema=schema).is_valid(value))
        except Exception:  # a schema can be wrong in as many ways as there are keywords
            return False

    def resolve(self, schema: Any) -> Any:
        """The schema behind `$ref`s; an empty one where they lead nowhere, or out of the document."""
        for _ in range(_DEEPEST):
            if not isinstance(schema, Mapping) or not isinstance(schema.get("$ref"), str):
                return schema
            beside = {key: value for key, value in schema.items() if key != "$ref"}
            target = self._target(schema["$ref"])
            if set(beside) - _SAYS_NOTHING:
                return {"allOf": [target, beside]}
            schema = {**target, **beside} if isinstance(target, Mapping) else target
        return {}

    def _target(self, reference: str) -> Any:
        if not reference.startswith("#"):
            return {}
        try:
            return self._validator._resolver.lookup(reference).contents  # type: ignore[attr-defined]
        except Exception:  # `referencing` has an error for each way to lead nowhere
            return {}

    def find(self, schema: Any, depth: int = 0) -> Found:
        """All that the schema offers. Whole `values` are not checked yet."""
        schema = self.resolve(schema)
        found = Found()
        self._steps += 1
        if not isinstance(schema, Mapping) or depth > _DEEPEST or self._steps > _MOST_STEPS:
            return found
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
        for kind in _list(kinds) if isinstance(kinds, list) else [kinds]:
            self._find_kind(kind, schema, found, depth)
        return found

    def _listed(self, schema: Mapping[str, Any], choices: list[Any], keyword: str) -> Found:
        """The values that `keyword` lists, the default first. Only what else the schema says is checked."""
        rest = {key: value for key, value in schema.items() if key != keyword and key not in _SAYS_NOTHING}
        if set(rest) == {"type"}:
            kinds = rest["type"] if isinstance(rest["type"], list) else [rest["type"]]
            choices = [choice for choice in choices if any(self._is_a(choice, kind) for kind in kinds)]
        elif rest:
            choices = [choice for choice in choices if self.valid(choice, rest)]
        offered = {as_json(choice) for choice in choices}
        first = [value for value in self._annotated(schema) if as_json(value) in offered]
        return Found(choices=[*first, *choices])

    def _is_a(self, value: Any, kind: Any) -> bool:
        try:
            return self._validator.is_type(value, kind)
        except Exception:  # no such type
            return False

    def _annotated(self, schema: Mapping[str, Any]) -> list[Any]:
        """`default` and `examples`; a reference among them stands for what it leads to."""
        given = [schema["default"]] if "default" in schema else []
        given += _list(schema.get("examples"))
        values = []
        for value in given:
            try:
                values.append(
                    resolve_reference(value, self._arguments, self._context) if is_reference(value) else value
                )
            except ReferenceNotFound:
                continue
        return values

    def _find_kind(self, kind: Any, schema: Mapping[str, Any], found: Found, depth: int) -> None:
        properties = schema.get("properties")
        if kind in ("object", None) and isinstance(properties, Mapping):
            found.parts.extend(name for name in properties if self._name_is_valid(name, schema))
        if kind in ("array", None):
            for items in (*_list(schema.get("prefixItems")), schema.get("items")):
                found.parts.extend(self._checked(items, depth + 1))
        if kind in ("string", None) and isinstance(schema.get("pattern"), str):
            found.values.extend(self._patterned(schema))
        if kind in ("integer", "number"):
            found.values.extend(numbers(schema, self._partial, whole=kind == "integer"))
        if kind == "boolean":
            found.values.extend([True, False])
        if kind == "null":
            found.values.append(None)

    def _name_is_valid(self, name: str, schema: Mapping[str, Any]) -> bool:
        return "propertyNames" not in schema or self.valid(name, schema["propertyNames"])

    def _checked(self, schema: Any, depth: int) -> list[Any]:
        """What a part of the value may be, each checked against the part's own schema."""
        found = self.find(schema, depth)
        good = [value for value in found.values if self.valid(value, schema)]
        return [*found.choices, *good, *found.parts]

    def _patterned(self, schema: Mapping[str, Any]) -> list[str]:
        pattern, most = schema["pattern"], schema.get("maxLength")
        examples = pattern_examples(
            pattern,
            min_length=_count(schema.get("minLength")) or 0,
            max_length=_count(most),
        )
        begun = continued(pattern, self._partial, examples) if self._partial else []
        return [*begun, *examples]


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
            if keyword == "anyOf" or len({as_json(value) for value in values}) == len(values):
                return values, keyword
    return [], ""


def _is_choice(branch: Any) -> bool:
    return isinstance(branch, Mapping) and "const" in branch and not set(branch) - _SAYS_NOTHING - {"const"}


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str)


def numbers(schema: Mapping[str, Any], partial: str, *, whole: bool) -> Iterator[Any]:
    """Numbers of a range: all when they are few, or else some that stand out and those begun by `partial`."""
    step = _decimal(schema.get("multipleOf")) or (Decimal(1) if whole else None)
    low, high = _bound(schema, "minimum", step, up=True), _bound(schema, "maximum", step, up=False)
    if low is not None and high is not None and low > high:
        return
    chosen: list[Decimal] = []
    if low is not None and high is not None:
        if step and (high - low) / step < _FEW:
            chosen = [low + step * place for place in range(int((high - low) / step) + 1)]
        else:
            chosen = [low + (high - low) * quarter / 4 for quarter in range(5)]
    elif low is not None or high is not None:
        chosen = [low if low is not None else high or Decimal(0)]
    typed = _decimal(partial)
    if typed is not None:
        chosen += [typed, *(typed * 10 + digit for digit in range(10) if typed == int(typed))]
    for number in chosen:
        if step:
            number = (number / step).to_integral_value() * step
        yield int(number) if number == int(number) else float(number)


def _bound(schema: Mapping[str, Any], name: str, step: Decimal | None, *, up: bool) -> Decimal | None:
    """The outermost allowed number on one side. Without a step, an excluded bound is left to the check."""
    given = _decimal(schema.get(name))
    excluded = _decimal(schema.get("exclusive" + name.capitalize()))
    if given is None and excluded is None:
        return None
    tightest = max if up else min
    bound = tightest(value for value in (given, excluded) if value is not None)
    if step is None:
        return bound
    stepped = (bound / step).to_integral_value(rounding="ROUND_CEILING" if up else "ROUND_FLOOR") * step
    return stepped + (step if up else -step) if stepped == excluded else stepped


def _decimal(value: Any) -> Decimal | None:
    """A finite number of a sane size, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() and abs(number.adjusted()) <= 30 else None


def _count(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _check_pattern(validator: Any, pattern: Any, instance: Any, schema: Any) -> Iterator[Exception]:
    from jsonschema.exceptions import ValidationError

    if isinstance(instance, str) and not matches(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")
