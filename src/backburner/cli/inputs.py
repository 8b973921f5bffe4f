"""Inputs and answers from the command line: `key=value` by the schema, `key:=json`, or a whole object."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from ..terminal_text import printable

_TEXT_TYPES = {"string"}


def read_inputs(words: Sequence[str], whole: str | None, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The object that `whole` (JSON, `@file` or `-`) gives, with each word put over it.

    The value of `key=value` is text where the schema says so, and else JSON if it is JSON.
    Raises typer.BadParameter, naming the word.
    """
    inputs = {} if whole is None else _read_whole(whole)
    properties = schema.get("properties") or {}
    for word in words:
        key, value = _read_word(word, properties)
        inputs[key] = value
    return inputs


def _read_whole(text: str) -> dict[str, Any]:
    try:
        if text == "-":
            text = sys.stdin.read()
        elif text.startswith("@"):
            text = Path(text[1:]).read_text("utf-8")
        value = json.loads(text)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"the object cannot be read: {printable(error)}") from None
    if not isinstance(value, dict):
        raise typer.BadParameter("the JSON must be an object with a field for each input")
    return value


def _read_word(word: str, properties: Mapping[str, Any]) -> tuple[str, Any]:
    key, equals, text = word.partition("=")
    if not equals or not key.rstrip(":"):
        raise typer.BadParameter(f"{printable(word)} is not key=value, nor key:=json")
    if key.endswith(":"):
        try:
            return key[:-1], json.loads(text)
        except ValueError as error:
            raise typer.BadParameter(f"{printable(word)} is not JSON after := ({error})") from None
    if _is_text(properties.get(key) or {}):
        return key, text
    try:
        return key, json.loads(text)
    except ValueError:
        return key, text


def _is_text(schema: Any) -> bool:
    """Whether the schema takes text and nothing that is also written without quotes, such as a number."""
    if not isinstance(schema, Mapping):
        return False
    kinds = schema.get("type")
    if kinds is not None:
        return set([kinds] if isinstance(kinds, str) else kinds) <= _TEXT_TYPES
    if "enum" in schema:
        return all(isinstance(value, str) for value in schema["enum"])
    return False
