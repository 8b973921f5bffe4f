"""Completion: the cases of `progress-and-completion.md`, and what holds for every schema."""

import contextlib
import json
import re
import select
import socket
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from backburner.errors import CompletionFailed, ReferenceNotFound
from backburner.mcp.completion import (
    Completion,
    CompletionRequest,
    complete,
    filter_completions,
    generate_completions_from_schema,
    resolve_argument_reference,
    resolve_context,
)
from backburner.mcp.completion.proposals import argument_to_complete

COLOURS = {"type": "string", "enum": ["red", "green", "blue"]}
PERSON = {
    "type": "object",
    "properties": {
        "firstName": {"type": "string"},
        "lastName": {"type": "string"},
        "email": {"type": "string"},
    },
}


def values(schema: Any, partial: str = "", **more: Any) -> tuple[str, ...]:
    return complete("tool", CompletionRequest(partial, **more), schema).values


# -- what the document shows


def test_an_enum_is_narrowed_by_what_has_been_typed() -> None:
    assert values(COLOURS) == ("red", "green", "blue")
    assert values(COLOURS, "re") == ("red", "green")
    assert values(COLOURS, "x") == ()


def test_an_object_offers_the_names_of_its_properties() -> None:
    assert values(PERSON) == ("firstName", "lastName", "email")
    assert values(PERSON, "na") == ("firstName", "lastName")
    assert values(PERSON, arguments={"lastName": "Lovelace"}) == ("firstName", "email")


def test_a_range_offers_its_ends_and_what_lies_between() -> None:
    percent = {"type": "integer", "minimum": 0, "maximum": 100}
    assert values(percent) == ("0", "25", "50", "75", "100")
    assert set(values(percent, "4")) == {"4", *(str(number) for number in range(40, 50))}
    assert values({"type": "integer", "exclusiveMinimum": 0, "maximum": 3}) == ("1", "2", "3")
    assert values({"type": "number", "minimum": 0, "maximum": 1}) == ("0", "0.25", "0.5", "0.75", "1")
    assert values({"type": "integer", "minimum": 3, "maximum": 20, "multipleOf": 5}) == (
        "5",
        "10",
        "15",
        "20",
    )
    assert values({"type": "integer", "minimum": 5, "maximum": 3}) == ()


def test_a_pattern_offers_texts_that_match_it() -> None:
    found = values({"type": "string", "pattern": "^[a-z_]+$"})
    assert found[:2] == ("snake_case", "example_name")
    assert all(re.search("^[a-z_]+$", text) for text in found)


def test_a_pattern_goes_on_from_what_has_been_typed() -> None:
    schema = {"type": "string", "pattern": r"^[A-Z]{2}-\d{4}$"}
    begun = values(schema, "QX-")
    assert begun
    assert all(re.search(r"^QX-\d{4}$", text) for text in begun)


def test_a_value_that_is_typed_in_full_comes_first_and_the_others_stay_in_reach() -> None:
    formats = {"type": "object", "properties": {"format": {"enum": ["docx", "pdf", "txt"]}}}
    request = CompletionRequest(
        "pdf", "format", arguments={"format": "pdf"}, context={"previous_file": "document.pdf"}
    )
    assert complete("tool", request, formats).to_dict() == {
        "values": ["pdf", "docx", "txt"],
        "total": 3,
        "hasMore": False,
    }


def test_the_filter_of_the_document() -> None:
    assert filter_completions(["apple", "banana", "apricot"], "ap") == ["apple", "apricot"]


# -- references


def test_references_in_the_context_are_resolved_from_the_arguments() -> None:
    arguments = {"user_id": "alice", "timestamp": "2024-01-01"}
    context = {"author_ref": "$.user_id", "category": "documents"}
    assert resolve_context(arguments, context) == {"author_ref": "alice", "category": "documents"}


def test_references_go_into_objects_and_lists() -> None:
    arguments = {"user": {"emails": [{"address": "a@example.com"}]}}
    assert resolve_argument_reference("$.user.emails[0].address", arguments, {}) == "a@example.com"
    assert resolve_argument_reference("$.user.emails.0.address", arguments, {}) == "a@example.com"
    nested = resolve_context(arguments, {"to": [{"mail": "$.user.emails[0].address"}], "gone": "$.no.such"})
    assert nested == {"to": [{"mail": "a@example.com"}], "gone": "$.no.such"}


@pytest.mark.parametrize(
    "reference",
    [
        "$.missing",
        "$.user.missing",
        "$.list[7]",
        "$.a",
        "$",
        "user",
        "$..x",
        "$.list.-1",
        f"$.list[{'9' * 5000}]",
    ],
)
def test_a_reference_that_leads_nowhere_is_an_error(reference: str) -> None:
    context = {"a": "$.b", "b": "$.a"}
    with pytest.raises(ReferenceNotFound) as caught:
        resolve_argument_reference(reference, {"user": "alice", "list": [1]}, context)
    assert caught.value.code == "not_found"


def test_a_reference_that_is_typed_is_completed_to_its_value() -> None:
    schema = {"type": "object", "properties": {"author": {"type": "string"}}}
    request = CompletionRequest("$.user", "author", context={"user": "alice"})
    assert complete("tool", request, schema).values == ("alice",)


def test_a_reference_that_leads_nowhere_is_not_offered() -> None:
    """Neither from the context, nor by the author, nor from an earlier call, nor within another value."""
    schema = {"type": "object", "properties": {"author": {}}}
    context = {"author": ["$.missing", {"of": "$.missing"}, "bob", "$.user"], "user": "alice"}
    suggested, history = ["$.missing.too", "carol"], ["$.lost"]
    request = CompletionRequest("", "author", {}, context, history, suggested)
    assert complete("tool", request, schema).values == ("carol", "bob", "alice")


def test_defaults_and_examples_may_be_references() -> None:
    schema = {"type": "string", "default": "$.user", "examples": ["bob", "$.missing"]}
    assert values(schema, context={"user": "alice"}) == ("alice", "bob")


def test_the_context_offers_what_it_has_under_the_arguments_name() -> None:
    schema = {"type": "object", "properties": {"file": {"type": "string", "maxLength": 5}}}
    assert values(schema, argument="file", context={"file": ["a.txt", "too-long.txt"]}) == ("a.txt",)


# -- more of JSON schema


def test_fixed_values_booleans_and_null() -> None:
    assert values({"const": "only"}) == ("only",)
    assert values({"type": "boolean"}) == ("true", "false")
    assert values({"type": ["boolean", "null"]}) == ("true", "false", "null")
    assert values({"enum": ["a", 1, None, {"k": 1}]}) == ("a", "1", "null", '{"k":1}')
    assert values({"type": "integer", "enum": ["a", 1]}) == ("1",)
    assert values({"type": "string", "default": "b", "examples": ["c"]}) == ("b", "c")
    assert values({"enum": ["a", "b", "c"], "default": "b"}) == ("b", "a", "c")


def test_a_list_offers_its_items() -> None:
    assert values({"type": "array", "items": COLOURS}) == ("red", "green", "blue")
    assert values({"type": "array", "prefixItems": [{"const": "first"}], "items": COLOURS}, "f") == ("first",)


def test_branches_offer_what_each_offers_as_far_as_the_whole_allows_it() -> None:
    assert values({"anyOf": [COLOURS, {"type": "null"}]}) == ("red", "green", "blue", "null")
    assert values({"oneOf": [{"enum": [1, 2]}, {"enum": [2, 3]}]}) == ("1", "3")
    assert values({"allOf": [{"enum": [1, 2]}, {"enum": [2, 3]}]}) == ("2",)
    titled = {"oneOf": [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]}
    assert values(titled) == ("a", "b")


def test_references_of_schemas_are_followed_and_circles_end() -> None:
    schema = {
        "type": "object",
        "properties": {"colour": {"$ref": "#/$defs/Colour"}, "tree": {"$ref": "#/$defs/Tree"}},
        "$defs": {
            "Colour": COLOURS,
            "Tree": {"anyOf": [{"const": "leaf"}, *({"items": {"$ref": "#/$defs/Tree"}} for _ in range(9))]},
        },
    }
    assert values(schema, argument="colour") == ("red", "green", "blue")
    assert values(schema, "leaf", argument="tree") == ("leaf",)
    assert values({"$ref": "https://example.com/schema"}) == ()
    assert values({"$ref": "#/$defs/Colour", "enum": ["red", "pink"], "$defs": schema["$defs"]}) == ("red",)


def test_references_are_followed_as_the_named_dialect_has_them() -> None:
    draft_7 = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"colour": {"$ref": "#colour"}},
        "definitions": {"Colour": {"$id": "#colour", **COLOURS}},
    }
    assert values(draft_7, argument="colour") == ("red", "green", "blue")
    assert values({**draft_7, "$schema": "urn:unknown", "properties": {"colour": COLOURS}}, argument="colour")


def test_a_reference_to_another_document_is_never_fetched() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        elsewhere = {"$ref": f"http://127.0.0.1:{server.getsockname()[1]}/schema"}
        assert values(elsewhere, history=["red"]) == ()
        assert not select.select([server], [], [], 0)[0]


@pytest.mark.parametrize("schema", [None, "string", 7, [COLOURS]])
def test_what_is_no_schema_is_an_error(schema: Any) -> None:
    with pytest.raises(CompletionFailed) as caught:
        complete("tool", CompletionRequest(), schema)
    assert caught.value.code == "completion_failed"


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": 12}, "type: 12"),
        ({"type": "text"}, "type: 'text'"),
        ({"pattern": "("}, "pattern: '('"),
        ({"enum": 3}, "enum: 3"),
        ({"minimum": "x"}, "minimum: 'x'"),
        ({"properties": {"x": 7}}, "properties: x: 7"),
        ({"anyOf": []}, "anyOf: []"),
        ({"anyOf": [{"enum": "red"}]}, "enum: 'red'"),
        ({"type": "array", "items": {"type": 1}}, "type: 1"),
        ({"$ref": 1}, "$ref: 1"),
        ({"$ref": "#/$defs/none"}, "'#/$defs/none'"),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "enum": []}, "enum: []"),
    ],
)
def test_a_schema_that_is_not_valid_is_an_error_that_says_why(schema: Any, reason: str) -> None:
    for fail in (lambda: complete("tool", {}, schema), lambda: generate_completions_from_schema(schema)):
        with pytest.raises(CompletionFailed) as caught:
            fail()
        assert caught.value.code == "completion_failed"
        assert reason in caught.value.details["reason"]


def test_a_part_that_is_not_needed_may_be_broken() -> None:
    form = {"type": "object", "properties": {"colour": COLOURS, "size": {"enum": "s"}}}
    assert values(form) == ("colour", "size")
    assert values(form, argument="colour") == ("red", "green", "blue")
    with pytest.raises(CompletionFailed, match=r"tool: .*enum"):
        values(form, argument="size")


# -- ranking, limits


def test_the_callers_own_earlier_values_come_first() -> None:
    assert values(COLOURS, history=["blue", "green", "blue"]) == ("blue", "green", "red")
    assert values({"type": "string"}, "a", history=["alpha", "beta", "aleph", "aleph"]) == (
        "aleph",
        "alpha",
        "beta",
    )
    assert values({"type": "string", "maxLength": 3}, history=["abc", "abcd"]) == ("abc",)


def test_an_authors_suggestions_are_offered_when_they_are_valid() -> None:
    assert values({"type": "integer"}, suggested=[3, "x", 5]) == ("3", "5")


def test_at_most_a_hundred_values_come_and_the_total_counts_all() -> None:
    many = {"enum": [f"value-{number:04}" for number in range(1000)]}
    completion = complete("tool", CompletionRequest("value"), many)
    assert (len(completion.values), completion.total, completion.has_more) == (100, 1000, True)
    assert complete("tool", CompletionRequest("value-000"), many) == Completion(
        tuple(f"value-000{digit}" for digit in range(10)), 10
    )


@pytest.mark.parametrize("request_", [CompletionRequest("prop"), CompletionRequest("v", "property_999")])
def test_a_schema_with_a_thousand_properties_takes_less_than_ten_milliseconds(
    request_: CompletionRequest,
) -> None:
    part = {"type": "string", "enum": [f"v{number}" for number in range(50)]}
    schema = {"type": "object", "properties": {f"property_{number}": part for number in range(1000)}}
    durations = []
    for _ in range(5):
        started = time.thread_time()
        assert complete("tool", request_, schema).values
        durations.append(time.thread_time() - started)
    assert min(durations) < 0.010


def test_a_pattern_that_explodes_does_not_hang() -> None:
    started = time.thread_time()
    for pattern in (
        r"^(a|aa)+$",
        r"^(([a-z])+.)+[A-Z]([a-z])+$",
        r"^(\w+\s?)*$",
        r"(x+x+)+y",
        r"((a{900}){900}){9}",
    ):
        schema = {"type": "string", "pattern": pattern, "default": "a" * 40 + "!"}
        values(schema, "a" * 40 + "!")
        values({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})
    assert time.thread_time() - started < 5


def test_a_bare_text_belongs_to_the_argument_that_has_it_or_lists_it() -> None:
    schema = {
        "type": "object",
        "properties": {"format": {"enum": ["pdf", "docx"]}, "title": {"type": "string"}},
    }
    assert argument_to_complete("pdf", {"format": "pdf"}, schema) == "format"
    assert argument_to_complete("doc", {}, schema) == "format"
    assert argument_to_complete("ti", {}, schema) is None
    assert argument_to_complete("", {}, schema) is None
    assert argument_to_complete("x", {}, True) is None


# -- what holds for every schema

_scalars = st.one_of(st.none(), st.booleans(), st.integers(-50, 50), st.text("ab$._1", max_size=4))
_leaves = st.one_of(
    st.fixed_dictionaries({"enum": st.lists(_scalars, max_size=5)}),
    st.fixed_dictionaries({"const": _scalars}),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["string", "integer", "number", "boolean", "null", "object", "array"])},
        optional={
            "minimum": st.integers(-20, 20),
            "maximum": st.integers(-20, 20),
            "exclusiveMaximum": st.integers(-20, 20),
            "multipleOf": st.sampled_from([1, 2, 5, 0.5]),
            "minLength": st.integers(0, 4),
            "maxLength": st.integers(0, 8),
            "pattern": st.sampled_from([r"^a", r"\d{2,}", r"^[a-z]+(-[a-z]+)*$", r"(?i)^x?y$", r"^(?!a).b$"]),
            "default": _scalars,
            "examples": st.lists(_scalars, max_size=3),
        },
    ),
)
_branches = st.recursive(
    st.one_of(_leaves, st.just({"$ref": "#/$defs/x"})),
    lambda inner: st.one_of(
        st.builds(
            lambda keyword, of: {keyword: of},
            st.sampled_from(["anyOf", "oneOf", "allOf"]),
            st.lists(inner, min_size=1, max_size=3),
        ),
        st.builds(lambda of, also: {**also, "not": of}, inner, inner),
    ),
    max_leaves=5,
)
_schemas = st.builds(lambda schema, x: {**schema, "$defs": {"x": x}}, _branches, _leaves)


@given(_schemas, st.text("ab1$.", max_size=3), st.lists(_scalars, max_size=4))
def test_every_proposed_value_is_valid_against_its_schema(
    schema: Any, partial: str, history: list[Any]
) -> None:
    validator = Draft202012Validator(schema)
    for text in complete("tool", CompletionRequest(partial, history=history), schema).values:
        readings = [text]
        with contextlib.suppress(ValueError):
            readings.append(json.loads(text))
        assert any(validator.is_valid(reading) for reading in readings), text
