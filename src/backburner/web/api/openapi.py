"""The OpenAPI 3.1 document, made from the operations and their models."""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from ...version import VERSION
from . import models, problems
from .operation import Operation

_REF = "#/components/schemas/{model}"
_IN_PATH = re.compile(r"\{(\w+)(?::path)?\}")
#: What any request may be answered with: no token, not allowed, not the right method, the store is away.
_ALWAYS = (400, 401, 403, 405, 503)
_CHANGING = (413, 415)

_DESCRIPTION = """Tasks of this server: reading, steering, following them.

A token's owner sees his own tasks; another's is the same 404 as one that is not there."""


def document(operations: Sequence[Operation], base: str, *, tokens: bool) -> dict[str, Any]:
    wanted: dict[tuple[type[BaseModel], JsonSchemaMode], None] = {(models.Problem, "serialization"): None}
    for one in operations:
        for model, mode in (
            (one.answer, "serialization"),
            (one.body, "validation"),
            (one.query, "validation"),
        ):
            if model is not None:
                wanted[model, mode] = None  # type: ignore[index]
    found, defined = models_json_schema([*wanted], ref_template=_REF)
    schemas = defined["$defs"]
    paths: dict[str, dict[str, Any]] = {}
    for one in operations:
        query = None if one.query is None else _resolved(found[one.query, "validation"], schemas)
        shape = _operation(
            one, {key: value for key, value in found.items() if key[0] is not one.query}, query
        )
        paths.setdefault(_IN_PATH.sub(r"{\1}", one.path), {})[one.method.lower()] = shape
    for name in {model.__name__ for model, mode in wanted if mode == "validation"} & {
        one.query.__name__ for one in operations if one.query
    }:
        schemas.pop(name, None)
    bearer = {"bearer": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Backburner", "version": VERSION, "description": _DESCRIPTION},
        "servers": [{"url": base}],
        "paths": paths,
        "components": {"schemas": schemas, **({"securitySchemes": bearer} if tokens else {})},
        **({"security": [{"bearer": []}]} if tokens else {}),
    }


def _resolved(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return found


def _operation(one: Operation, found: dict[Any, Any], query: dict[str, Any] | None) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _IN_PATH.findall(one.path)
    ]
    for name, schema in (query or {}).get("properties", {}).items():
        parameters.append({"name": name, "in": "query", "required": False, "schema": _not_null(schema)})
    if one.streams:
        last = {"type": "string", "maxLength": 40}
        parameters.append({"name": "Last-Event-ID", "in": "header", "required": False, "schema": last})
    shape: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.summary,
        "tags": [one.group],
        "parameters": parameters,
        "responses": _responses(one, found),
    }
    if one.body is not None:
        content = {"application/json": {"schema": found[one.body, "validation"]}}
        shape["requestBody"] = {"required": True, "content": content}
    return shape


def _responses(one: Operation, found: dict[Any, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status in (one.status, *one.also):
        responses[str(status)] = {"description": HTTPStatus(status).phrase}
        if one.streams:
            responses[str(status)]["content"] = {"text/event-stream": {"schema": {"type": "string"}}}
        elif one.answer is not None:
            content = {"application/json": {"schema": found[one.answer, "serialization"]}}
            responses[str(status)]["content"] = content
    for status in sorted({*_ALWAYS, *(_CHANGING if one.method != "GET" else ()), *one.refused}):
        content = {problems.MEDIA_TYPE: {"schema": found[models.Problem, "serialization"]}}
        responses[str(status)] = {"description": HTTPStatus(status).phrase, "content": content}
    return responses


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A query has no null: what may be that is left out."""
    some = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default", "title")}
    merged = {**rest, **some[0]} if len(some) == 1 else {**rest, **({"anyOf": some} if some else {})}
    return {**merged, **({"default": schema["default"]} if schema.get("default") is not None else {})}
