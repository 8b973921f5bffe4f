"""JSON texts for fuzzing, made after a JSON schema: what it allows, what it just does not, and extremes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

Texts = st.SearchStrategy[str]

#: What programs stumble over. Not all are values of Python: there is `NaN`, and a number of 5000 digits.
EXTREMES: Texts = st.sampled_from(
    [
        *("null", "true", "false", "0", "-0", "-1", "0.5", "1e-320", "1e300", "-1e300", "1e999", "-1e999"),
        *("NaN", "Infinity", "-Infinity", "9007199254740993", "9223372036854775808", "-9223372036854775809"),
        *(str(10**12), str(10**15), str(10**18), str(10**26), str(-(10**26)), str(10**400), "9" * 5000),
        *('""', '" "', '"\\u0000"', '"a\\u0000b"', '"\\ud800"', '"\\udfff x"', '"\\u200b\\u202e"', '"\\\\"'),
        *(json.dumps("x" * 257), json.dumps("x" * 100_000), '"../../etc/passwd"', '"%00%2e%2e"', '"{0!r}"'),
        *("[]", "{}", "[null]", '{"":null}', '{"__class__":"x"}', '{"$ref":"#"}', '["a","a"]'),
        *("[" * depth + "]" * depth for depth in (50, 150, 500, 5000)),
        *('{"a":' * depth + "1" + "}" * depth for depth in (50, 150, 500)),
        json.dumps(list(range(20_000))),
        json.dumps({str(number): number for number in range(5_000)}),
    ]
)
ANYTHING: Texts = EXTREMES | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
).map(json.dumps)


def object_text(fields: Mapping[str, str]) -> str:
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in fields.items()) + "}"


def texts_for(schema: Any, known: Mapping[str, Texts]) -> Texts:
    """Texts for a schema: mostly close to what it allows, now and then anything.

    `known` has texts for properties by their name, such as ids that are there.
    """
    if not isinstance(schema, Mapping):
        return ANYTHING
    kinds = schema.get("type", "string")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    close = [_of_kind(kind, schema, known) for kind in kinds]
    if "enum" in schema:
        close = [st.sampled_from([json.dumps(value) for value in schema["enum"]])]
    near = st.one_of(close)
    return st.one_of(near, near, near, ANYTHING)


def _of_kind(kind: str, schema: Mapping[str, Any], known: Mapping[str, Texts]) -> Texts:
    match kind:
        case "integer" | "number":
            edges = [value for key in _EDGES if isinstance(value := schema.get(key), int | float)]
            near = [edge + step for edge in edges for step in (-1, -0.5, 0, 0.5, 1)]
            return st.sampled_from([*near, 0, 1, 3]).map(json.dumps)
        case "string":
            longest = int(schema.get("maxLength", 40))
            return st.one_of(
                st.text(max_size=12).map(json.dumps),
                st.sampled_from([longest - 1, longest, longest + 1]).map(lambda size: json.dumps("é" * size)),
            )
        case "array":
            items = texts_for(schema.get("items", {}), known)
            return st.lists(items, max_size=4).map(lambda texts: f"[{','.join(texts)}]")
        case "object":
            return _object(schema, known)
        case _:
            return st.sampled_from(["null", "true", "false"])


_EDGES = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


@st.composite
def _object(draw: st.DrawFn, schema: Mapping[str, Any], known: Mapping[str, Texts]) -> str:
    properties: Mapping[str, Any] = schema.get("properties", {})
    required = schema.get("required", [])
    fields: dict[str, str] = {}
    for name, part in properties.items():
        if draw(st.integers(0, 9)) < (9 if name in required else 4):
            texts = texts_for(part, known)
            fields[name] = draw(st.one_of(known[name], known[name], texts) if name in known else texts)
    if draw(st.integers(0, 9)) == 9:
        fields[draw(st.text(max_size=10))] = draw(ANYTHING)
    return object_text(fields)
