"""Values that a JSON schema allows: numbers, patterns, enumerations and references."""

from __future__ import annotations

import contextlib
import json
import math
import random
import re
import string
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any

import regex
from jsonschema.protocols import Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012, SchemaRegistry, specification_with

from ...core.schema import bounded_validator, schema_complaint, within_bounds
from ...errors import CompletionFailed, ReferenceNotFound

#: Keywords without effect on validity.
SAYS_NOTHING = frozenset({"title", "description", "default", "examples", "deprecated", "$comment"})
_LONGEST_CHAIN = 8
#: Empty: no other documents are loaded.
_REGISTRY: SchemaRegistry = Registry()


class SchemaDocument:
    """A JSON schema document."""

    def __init__(self, root: Any) -> None:
        self._root = root

    def check(self, part: Any) -> None:
        """Raise CompletionFailed if a part is not a valid schema."""
        complaint = schema_complaint(part, self._root)
        if complaint is not None:
            raise CompletionFailed(reason=f"the schema is not valid: {complaint}")

    @cached_property
    def _validator(self) -> Validator:
        return bounded_validator(self._root)

    @cached_property
    def _resolver(self) -> Any:
        dialect = self._root.get("$schema", "") if isinstance(self._root, Mapping) else ""
        specification = specification_with(str(dialect), default=DRAFT202012)
        return _REGISTRY.resolver_with_root(specification.create_resource(self._root))

    def valid(self, value: Any, schema: Any) -> bool:
        """Return whether a part of the document allows the value; False if it cannot be checked."""
        try:
            with within_bounds(self._root):
                return bool(self._validator.evolve(schema=schema).is_valid(value))
        except Exception:  # a broken schema raises many types
            return False

    def is_a(self, value: Any, kinds: Any) -> bool:
        """Return whether the value has one of these JSON types."""
        for kind in kinds if isinstance(kinds, list) else [kinds]:
            with contextlib.suppress(Exception):  # unknown type
                if self._validator.is_type(value, kind):
                    return True
        return False

    def resolve(self, schema: Any) -> Any:
        """Return the schema behind `$ref`s; an empty one for external or endless references.

        Raises CompletionFailed for a missing target.
        """
        for _ in range(_LONGEST_CHAIN):
            if not isinstance(schema, Mapping) or not isinstance(schema.get("$ref"), str):
                return schema
            others = without(schema, "$ref")
            target = self._target(schema["$ref"])
            if set(others) - SAYS_NOTHING:
                return {"allOf": [target, others]}
            schema = {**target, **others} if isinstance(target, Mapping) else target
        return {}

    def _target(self, reference: str) -> Any:
        if not reference.startswith("#"):
            return {}
        try:
            return self._resolver.lookup(reference).contents
        except Exception:  # `referencing` has many error types
            reason = f"the schema is not valid: {reference[:100]!r} has no target in it"
            raise CompletionFailed(reason=reason) from None


def without(schema: Mapping[str, Any], *keywords: str) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in keywords}


#: A range with fewer numbers is offered completely.
_FEW = 20


def numbers(schema: Mapping[str, Any], partial: str, *, whole: bool) -> Iterator[int | float]:
    """Yield the numbers of a small range, or samples, and those that begin with `partial`.

    They are rounded to the schema's step.
    """
    step = _decimal(schema.get("multipleOf")) or (Decimal(1) if whole else None)
    low, high = _bound(schema, "minimum", step, up=True), _bound(schema, "maximum", step, up=False)
    if low is not None and high is not None and low > high:
        return
    for number in (*_within(low, high, step), *_begun(partial)):
        rounded = (number / step).to_integral_value() * step if step else number
        yield int(rounded) if rounded == int(rounded) else float(rounded)


def _within(low: Decimal | None, high: Decimal | None, step: Decimal | None) -> list[Decimal]:
    """Return all numbers between the bounds if they are few, or else both ends and the quarters."""
    if low is None or high is None:
        return [bound for bound in (low, high) if bound is not None]
    if step and (high - low) / step < _FEW:
        return [low + step * place for place in range(int((high - low) / step) + 1)]
    return [low + (high - low) * quarter / 4 for quarter in range(5)]


def _begun(partial: str) -> list[Decimal]:
    """Return the typed number, and those with one more digit."""
    typed = _decimal(partial)
    if typed is None:
        return []
    return [typed, *(typed * 10 + digit for digit in range(10) if typed == int(typed))]


def _bound(schema: Mapping[str, Any], name: str, step: Decimal | None, *, up: bool) -> Decimal | None:
    """Return the bound on one side; without a step it may be an excluded one."""
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
    """Return a finite number of reasonable size, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() and abs(number.adjusted()) <= 30 else None


#: Generated texts are no longer than this, and are abandoned after this many steps.
MOST_CHARS, _MOST_STEPS = 200, 2000
_VARIANTS = 24

_LETTERS = string.ascii_lowercase
_READABLE = string.ascii_letters + string.digits + "_-. "
_CLASSES = {
    "d": string.digits,
    "D": _LETTERS,
    "w": _LETTERS + string.digits,
    "W": "-. ",
    "s": " ",
    "S": _LETTERS + string.digits,
}
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_CODE = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})")
_QUANTIFIER = re.compile(r"(?:([*+?])|\{(?=[\d,])(\d*)(,?)(\d*)\})[?+]?")
_GROUP = re.compile(
    r"\?(?:(?P<plain>[:>]|[a-zA-Z-]+:)|P<\w+>|(?P<assertion><?[=!])|(?P<flags>[a-zA-Z-]+(?=\))))"
)


class _Unsupported(Exception):
    """The pattern uses other syntax, or its text would be too long."""


class _Generator:
    """Writes one text along a pattern, without its assertions. `extra` is added to each repeat count."""

    def __init__(self, pattern: str, seed: int, min_length: int) -> None:
        self._pattern, self._at, self._steps = pattern, 0, 0
        self._random, self._extra, self._min_length = random.Random(seed), seed % 6, min_length
        self._numbers: dict[int, int] = {}
        self._groups: dict[int, str] = {}

    def text(self) -> str:
        text = self._alternatives()
        if self._at < len(self._pattern):
            raise _Unsupported
        return text

    @property
    def _next(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _take(self) -> str:
        if self._at >= len(self._pattern):
            raise _Unsupported
        self._at += 1
        return self._pattern[self._at - 1]

    def _alternatives(self) -> str:
        branches = [self._sequence()]
        while self._next == "|":
            self._at += 1
            branches.append(self._sequence())
        return self._random.choice(branches)

    def _sequence(self) -> str:
        text = ""
        while self._next not in ("", "|", ")"):
            start, part = self._at, self._atom()
            end, times = self._repeats()
            text += part if times else ""
            for _ in range(times - 1):
                self._at = start
                text += self._atom()
                if len(text) > MOST_CHARS:
                    raise _Unsupported
            self._at = end
        return text

    def _repeats(self) -> tuple[int, int]:
        """Return the position after the quantifier, and the number of repeats."""
        found = _QUANTIFIER.match(self._pattern, self._at)
        if found is None:
            return self._at, 1
        sign, low, comma, high = found.groups()
        least = int(sign == "+") if sign else int(low or 0)
        most = (
            math.inf if sign in ("*", "+") or (comma and not high) else 1 if sign else int(high or low or 0)
        )
        wanted = max(least + self._extra, self._min_length if self._extra else 0)
        return found.end(), int(max(least, min(most, wanted)))

    def _atom(self) -> str:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise _Unsupported
        match char := self._take():
            case "(":
                return self._group()
            case "[":
                return self._choice(self._set())
            case ".":
                return self._choice(_LETTERS)
            case "\\":
                if self._next.isdigit():
                    return self._groups.get(int(self._take()), "")
                return self._choice(self._escaped() or [""])
        return "" if char in "^$" else char

    def _group(self) -> str:
        start, found = self._at, _GROUP.match(self._pattern, self._at)
        if found is not None:
            self._at = found.end()
        elif self._next == "?":
            raise _Unsupported
        captures = found is None or not any(found.groups())
        number = self._numbers.setdefault(start, len(self._numbers) + 1) if captures else 0
        text = self._alternatives()
        if self._take() != ")":
            raise _Unsupported
        self._groups[number] = text
        return "" if found is not None and found["assertion"] else text

    def _escaped(self) -> str:
        """Return the characters that an escape stands for; none for an assertion."""
        if (code := _CODE.match(self._pattern, self._at)) is not None:
            self._at = code.end()
            return chr(int(code[code.lastindex or 0], 16))
        char = self._take()
        return "" if char in "bBAZ" else _CLASSES.get(char) or _CONTROL.get(char, char)

    def _set(self) -> list[str]:
        negated = self._next == "^"
        self._at += negated
        chosen: list[str] = []
        while (char := self._take()) != "]" or not chosen:
            members = self._escaped() if char == "\\" else char
            if self._next == "-" and self._pattern[self._at + 1 : self._at + 2] != "]":
                self._at += 1
                last = self._take()
                last = self._escaped() if last == "\\" else last
                chosen += [one for one in _READABLE if members <= one <= last] or [members]
            else:
                chosen += members
        return [one for one in _READABLE if one not in chosen] if negated else chosen

    def _choice(self, characters: str | list[str]) -> str:
        if not characters:
            raise _Unsupported
        return self._random.choice(characters)


def _texts(pattern: str, min_length: int) -> Iterator[str]:
    """Generate candidate texts for a pattern, the same in each process; the caller checks them."""
    for seed in range(_VARIANTS):
        with contextlib.suppress(_Unsupported, RecursionError):
            yield _Generator(pattern, seed, min_length).text()


#: Time limit of one match; a pattern that backtracks longer is not used.
_MATCH_S = 0.005
#: A pattern whose least repeats multiply to more than this takes too long to compile.
_WIDEST = 10_000
_LEAST = re.compile(r"\{(\d+)")

#: Common texts, tried before generated ones.
_SAMPLES = (
    "snake_case", "example_name", "example", "Example", "EXAMPLE", "example-name", "example1", "1", "42",
    "2026", "1.0", "1.2.3", "v1.2.3", "2026-01-31", "12:30", "2026-01-31T12:30:00Z", "user@example.com",
    "example.com", "https://example.com/", "192.0.2.1", "/path/to/file", "file.txt", "+15550100", "#336699",
    "123e4567-e89b-12d3-a456-426614174000",
)  # fmt: skip


def matches(pattern: str, text: str) -> bool:
    """Return whether `re.search` finds the pattern; False for a slow or invalid one."""
    if not _is_usable(pattern):
        return False
    try:
        return regex.search(pattern, text, timeout=_MATCH_S, concurrent=True) is not None
    except (TimeoutError, regex.error, RecursionError, OverflowError):
        return False


@lru_cache(maxsize=512)
def pattern_examples(
    pattern: str, *, min_length: int = 0, max_length: int | None = None, limit: int = 10
) -> tuple[str, ...]:
    """Return up to `limit` texts that match with a fitting length; may be empty."""
    if not _is_usable(pattern):
        return ()
    found: dict[str, None] = {}
    longest = MOST_CHARS if max_length is None else min(max_length, MOST_CHARS)
    for text in chain(_SAMPLES, _texts(pattern, min_length)):
        if len(found) == limit:
            break
        if min_length <= len(text) <= longest and text not in found and matches(pattern, text):
            found[text] = None
    return tuple(found)


def continued(pattern: str, partial: str, examples: tuple[str, ...]) -> list[str]:
    """Return matching texts that begin with `partial`: itself, and it with the end of each example."""
    tries = dict.fromkeys([partial, *(partial + example[len(partial) :] for example in examples)])
    return [text for text in tries if len(text) <= MOST_CHARS and matches(pattern, text)]


@lru_cache(maxsize=512)
def _is_usable(pattern: str) -> bool:
    try:
        if math.prod(int(least) or 1 for least in _LEAST.findall(pattern)) > _WIDEST:
            return False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            re.compile(pattern)
    except (re.error, RecursionError, OverflowError, ValueError):
        return False
    return True


_DEEPEST = 8
#: Most subschemas visited, for recursive schemas.
_MOST_PARTS = 500


@dataclass(frozen=True)
class Found:
    """Values of a schema.

    `choices` are all its values, if it lists them. `values` are samples, to be validated. `parts` are
    property names and list items, valid in their place.
    """

    choices: list[Any] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    parts: list[Any] = field(default_factory=list)

    def add(self, other: Found) -> None:
        """Add the values of a branch, which the outer schema may still forbid."""
        self.values.extend([*other.choices, *other.values])
        self.parts.extend(other.parts)


class SchemaValues:
    """Finds values of one document's schemas.

    `partial` is the typed text; `$.` references lead into `arguments` and `context`.
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
        """Return the values of the schema."""
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
        """Return the listed values that the rest of the schema allows, the default first."""
        rest = without(schema, keyword, *SAYS_NOTHING)
        if set(rest) == {"type"}:  # fast path
            choices = [choice for choice in choices if self._document.is_a(choice, rest["type"])]
        elif rest:
            choices = [choice for choice in choices if self._document.valid(choice, rest)]
        offered = {as_json(choice) for choice in choices}
        first = [value for value in self._annotated(schema) if as_json(value) in offered]
        return Found(choices=[*first, *choices])

    def _annotated(self, schema: Mapping[str, Any]) -> Iterator[Any]:
        """Yield `default` and `examples`, with references resolved."""
        given = [schema["default"]] if "default" in schema else []
        for value in [*given, *_list(schema.get("examples"))]:
            if not is_reference(value):
                yield value
                continue
            with contextlib.suppress(ReferenceNotFound):
                yield resolve_argument_reference(value, self._arguments, self._context)

    def _of_kind(self, kind: Any, schema: Mapping[str, Any]) -> list[Any]:
        """Return values of one type; None stands for any."""
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
        """Return texts that match the schema's pattern, first those that continue the typed text."""
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
        """Yield property names, and valid items of a list."""
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
    """Return the values that a schema lists, and the keyword: `const`, `enum`, or `oneOf`/`anyOf` of
    constants.
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
            # A value that occurs twice in `oneOf` is not valid.
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


_REFERENCE = re.compile(r"\$(\.[^.\[\]]+|\[\d+\])+")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


def is_reference(value: Any) -> bool:
    return isinstance(value, str) and _REFERENCE.fullmatch(value) is not None


def has_reference(value: Any) -> bool:
    """Return whether a value is or contains a reference."""
    if isinstance(value, Mapping):
        return any(map(has_reference, value.values()))
    return any(map(has_reference, value)) if isinstance(value, list | tuple) else is_reference(value)


def resolve_argument_reference(
    reference: str, arguments: Mapping[str, Any], context: Mapping[str, Any]
) -> Any:
    """Return the target of a reference such as `$.files[0].name` in the arguments, or else the context.

    Raises ReferenceNotFound, also for cycles.
    """
    value: Any = reference
    for _ in range(_LONGEST_CHAIN):
        value = _lookup(value, arguments, context)
        if not is_reference(value):
            return value
    raise ReferenceNotFound(reference=reference)


def resolve_context(arguments: Mapping[str, Any], context: Mapping[str, Any]) -> dict[str, Any]:
    """Return the context with all references replaced; one without a target stays."""

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
            # ValueError: too many digits for `int`.
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
