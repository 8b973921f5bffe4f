"""Holding values against JSON schemas, in bounded time, whatever the schema and the value are.

`jsonschema` alone has no bounds: a pattern may backtrack for ever, references may double with each step or
lead round in a circle, and a part may name a dialect of its own, or a document on another server. Here a
check takes ten seconds of its thread at most, other threads run meanwhile, and nothing is fetched.

Import it where it is needed: `jsonschema` takes long to load.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import islice
from math import prod
from typing import Any

import regex
from jsonschema import FormatChecker
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.protocols import Validator
from jsonschema.validators import Draft202012Validator, extend, validator_for
from referencing import Registry
from referencing.jsonschema import SchemaRegistry

#: What a check may take of its thread's time. A mebibyte of small inputs takes about three seconds.
_MOST_S = 10.0
#: What one match of a pattern may take of that. Those that need longer would mostly need for ever.
_MATCH_S = 1.0
#: A pattern whose least repetitions multiply to more than this takes too much time and memory to compile.
_WIDEST = 1_000_000
_REPEATED = re.compile(r"\{(\d{1,9})")
#: Keywords within keywords. A value is nested about half as deep.
_DEEPEST = 100
#: How many keywords are passed between two looks at the clock, which takes longer than most of them.
_STEPS = 64
#: So many errors are enough to choose the best from.
_ENOUGH_ERRORS = 100
_ENOUGH_NAMES = 10
_LONGEST_MESSAGE = 300
#: Holds no other documents and fetches none.
_REGISTRY: SchemaRegistry = Registry()

#: Keywords that look at a value and lead to no other part of the schema.
_LEAVES = frozenset(
    {
        *("const", "enum", "type", "format", "multipleOf", "required"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
        *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
    }
)
#: Keywords that lead round, or whose checks have no bounds of their own.
_UNBOUNDED = frozenset(
    {
        *("$ref", "$dynamicRef", "$recursiveRef"),
        *("pattern", "patternProperties", "unevaluatedProperties", "uniqueItems"),
    }
)

#: Keywords that hold schemas: by name, in a list, or one.
_SCHEMAS_BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_LISTS_OF_SCHEMAS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems", "items"})
_SCHEMAS = frozenset(
    {
        *("items", "additionalItems", "additionalProperties", "propertyNames", "contains"),
        *("not", "if", "then", "else", "unevaluatedItems", "unevaluatedProperties"),
    }
)
#: Patterns are looked at with an engine that can be stopped; the other formats are none of schemas.
_NO_FORMATS = FormatChecker(())

Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]


@dataclass(frozen=True, slots=True)
class Complaint:
    """A violation: path in the value, keyword of the schema, and a message that may quote the value."""

    path: tuple[str | int, ...]
    rule: str
    message: str


class SchemaCheck:
    """A JSON schema to hold values against. It may be any schema: one that is wrong allows nothing.

    `stock` is a validator without the cost of bounds, for the many schemas that need none; else None.
    """

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self.stock = _stock_validator(schema)
        self._validator = self.stock

    def complaint(self, value: Any, of_errors: int = _ENOUGH_ERRORS) -> Complaint | None:
        """Return the most relevant of the first `of_errors` errors, or the reason why the check failed.

        Returns None for a valid value.
        """
        try:
            with within_bounds(self._schema):
                if self._validator is None:
                    self._validator = bounded_validator(self._schema)
                error = best_match(islice(self._validator.iter_errors(value), of_errors))
        except GivenUp as error:
            return Complaint((), "", f"it cannot be checked, since {error}")
        except BaseException as error:
            # The maps of `referencing` panic, with an exception of their own, where the stack ends.
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            return Complaint((), "", f"it cannot be checked: {error!r}"[:_LONGEST_MESSAGE])
        return None if error is None else _complaint(error)


def _complaint(error: ValidationError) -> Complaint:
    message = error.message
    if len(message) > _LONGEST_MESSAGE:
        message = message[:_LONGEST_MESSAGE] + "…"
    return Complaint(tuple(error.absolute_path), str(error.validator), message)


class GivenUp(Exception):
    """A check would take too long, or lead nowhere."""


@contextmanager
def within_bounds(document: Any, most_s: float = _MOST_S) -> Iterator[None]:
    """All checks in the block are of parts of that document, and together take no longer than that."""
    if _EFFORT.begun:
        yield
        return
    _EFFORT.begin(document, most_s)
    try:
        yield
    finally:
        _EFFORT.begun = False


def bounded_validator(schema: Any) -> Validator:
    """A validator for a schema of any dialect. Its checks raise GivenUp, and must be `within_bounds`."""
    kind = _bounded_kind(validator_for(schema, default=Draft202012Validator))
    validator: Validator = kind(schema, registry=_REGISTRY)
    return validator


def schema_complaint(part: Any, document: Any) -> str | None:
    """Return the reason why a part of a document is not a schema; None if it is one.

    Schemas inside the part are not checked.
    """
    if not isinstance(part, Mapping):
        return None if isinstance(part, bool) else f"a schema is an object, not {type(part).__name__}"
    kind: Any = validator_for(document, default=Draft202012Validator)
    try:
        kind.check_schema(_without_inner_schemas(part), format_checker=_NO_FORMATS)
        if isinstance(part.get("pattern"), str):
            _compiled(part["pattern"])
    except SchemaError as error:
        where = "".join(f"{step}: " for step in error.absolute_path)
        return (where + error.message)[:_LONGEST_MESSAGE]
    except regex.error as error:
        return f"pattern: {part['pattern']!r} is none: {error}"[:_LONGEST_MESSAGE]
    except (RecursionError, OverflowError, MemoryError):
        return None  # it may be one, and whoever checks a value by it will say what it takes
    return None


def _without_inner_schemas(part: Mapping[str, Any]) -> dict[str, Any]:
    """The same, with schemas that allow everything in place of those within it."""
    shown = dict(part)
    for keyword, value in part.items():
        if keyword in _SCHEMAS_BY_NAME and isinstance(value, Mapping) and _are_schemas(value.values()):
            shown[keyword] = {}
        elif keyword in _LISTS_OF_SCHEMAS and isinstance(value, list) and value and _are_schemas(value):
            shown[keyword] = [{}]
        elif keyword in _SCHEMAS and isinstance(value, Mapping):
            shown[keyword] = {}
    return shown


def _are_schemas(values: Iterable[Any]) -> bool:
    return all(isinstance(value, Mapping | bool) for value in values)


def _stock_validator(schema: Any) -> Validator | None:
    """For a schema that leads on only as far as it goes; None for any other."""
    if _mentions(schema, _UNBOUNDED) or _mentions(_parts(schema), {"$schema"}):
        return None
    kind = validator_for(schema, default=Draft202012Validator)
    validator: Validator = kind(schema, registry=_REGISTRY)
    return validator


# -- the bounds ------------------------------------------------------------------------------------


class _Effort(threading.local):
    """Time and depth left for the check on this thread."""

    begun = False

    def begin(self, document: Any, most_s: float) -> None:
        self.begun = True
        self.document, self.most_s = document, most_s
        self.depth = self.steps = 0
        self.until = time.thread_time() + most_s

    def step(self) -> None:
        self.steps += 1
        if self.depth > _DEEPEST:
            raise GivenUp(f"its schema leads more than {_DEEPEST} steps deep")
        if self.steps % _STEPS == 0:
            self.left_s()

    def left_s(self) -> float:
        left = self.until - time.thread_time()
        if left <= 0:
            raise GivenUp(f"that takes more than {self.most_s:g} s")
        return left


_EFFORT = _Effort()


@cache
def _bounded_kind(kind: Any) -> Any:
    """The same kind of validator, within the bounds."""
    own = {name: check for name, check in _OWN.items() if name in kind.VALIDATORS}
    keywords = {name: check for name, check in {**kind.VALIDATORS, **own}.items() if name not in _LEAVES}
    counted = {name: _counted(check) for name, check in keywords.items()}
    made: Any = extend(kind, counted)  # type: ignore[no-untyped-call]
    evolve = made.evolve

    def evolve_in_kind(self: Any, **changes: Any) -> Any:
        schema = changes.get("schema")
        if isinstance(schema, Mapping) and "$schema" in schema:
            # A part that names its dialect would bring a validator of its own, without bounds.
            changes["schema"] = {key: value for key, value in schema.items() if key != "$schema"}
        return evolve(self, **changes)

    made.evolve = evolve_in_kind
    return made


def _counted(check: Keyword) -> Keyword:
    def check_within_bounds(
        validator: Any, value: Any, instance: Any, schema: Any
    ) -> Iterator[ValidationError]:
        _EFFORT.step()
        _EFFORT.depth += 1
        try:
            yield from check(validator, value, instance, schema) or ()
        finally:
            _EFFORT.depth -= 1

    return check_within_bounds


# -- keywords that have no bounds of their own -----------------------------------------------------


def _found(pattern: str, text: str) -> bool:
    """Return whether the pattern is found. Uses `regex`, whose search can be stopped, unlike that of `re`."""
    timeout = min(_MATCH_S, _EFFORT.left_s())
    try:
        return _compiled(pattern).search(text, timeout=timeout, concurrent=True) is not None
    except TimeoutError:
        raise GivenUp(f"the pattern {pattern[:50]!r} takes too long") from None
    except (regex.error, RecursionError, OverflowError, MemoryError) as error:
        raise GivenUp(f"{pattern[:50]!r} is no pattern: {error}") from None


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> regex.Pattern[str]:
    if prod(int(least) or 1 for least in _REPEATED.findall(pattern)) > _WIDEST:
        raise OverflowError("it repeats too often")
    return regex.compile(pattern)


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and not _found(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if validator.is_type(instance, "object"):
        for pattern, part in patterns.items():
            for name, value in instance.items():
                if _found(pattern, name):
                    yield from validator.descend(value, part, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any, part: Any, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    extras = [
        name for name in instance if name not in known and not any(_found(one, name) for one in patterns)
    ]
    if part is not False:
        for name in extras:
            yield from validator.descend(instance[name], part, path=name)
    elif extras:
        names = ", ".join(map(repr, sorted(extras)[:_ENOUGH_NAMES]))
        verb = "was" if len(extras) == 1 else "were"
        yield ValidationError(f"Additional properties are not allowed ({names} {verb} unexpected)")


def _unique_items(validator: Any, unique: bool, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if unique and validator.is_type(instance, "array") and len(set(map(_identity, instance))) < len(instance):
        yield ValidationError(f"{instance!r} has non-unique elements")


def _identity(value: Any) -> Any:
    """Return a hashable that is equal for values that JSON Schema considers equal."""
    if isinstance(value, Mapping):
        return frozenset((name, _identity(one)) for name, one in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(_identity, value))
    return (type(value), value) if isinstance(value, bool | str) else value


def _unevaluated_properties(check: Keyword) -> Keyword:
    def check_without_patterns(
        validator: Any, part: Any, instance: Any, schema: Any
    ) -> Iterator[ValidationError]:
        if _mentions(_EFFORT.document, {"patternProperties"}):
            raise GivenUp("`unevaluatedProperties` beside `patternProperties` may take for ever")
        yield from check(validator, part, instance, schema) or ()

    return check_without_patterns


def _mentions(document: Any, names: Set[str]) -> bool:
    """Return whether any of the names is a key anywhere in a document."""
    if isinstance(document, dict) and not names.isdisjoint(document.keys()):
        return True
    return any(_mentions(part, names) for part in _parts(document))


def _parts(document: Any) -> list[Any]:
    inner = document.values() if isinstance(document, dict) else document
    return (
        [part for part in inner if isinstance(part, dict | list)] if isinstance(document, dict | list) else []
    )


_OWN: Mapping[str, Keyword] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "uniqueItems": _unique_items,
    "unevaluatedProperties": _unevaluated_properties(
        Draft202012Validator.VALIDATORS["unevaluatedProperties"]
    ),
}
