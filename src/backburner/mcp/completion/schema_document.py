"""A JSON schema as a whole: which values its parts allow, and where references within it lead."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from jsonschema.protocols import Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012, SchemaRegistry, specification_with

from ...errors import CompletionFailed
from ...schema_check import bounded_validator, schema_complaint, within_bounds

#: Keywords that say nothing about which values there are.
SAYS_NOTHING = frozenset({"title", "description", "default", "examples", "deprecated", "$comment"})
_LONGEST_CHAIN = 8
#: Holds no other documents and fetches none.
_REGISTRY: SchemaRegistry = Registry()


class SchemaDocument:
    """The schema of a tool's inputs, or of anything else."""

    def __init__(self, root: Any) -> None:
        self._root = root

    def check(self, part: Any) -> None:
        """Raise CompletionFailed when a part that is needed is no schema."""
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
        """Whether a part of the document allows the value. Not when it cannot be said: it may be broken."""
        try:
            with within_bounds(self._root):
                return bool(self._validator.evolve(schema=schema).is_valid(value))
        except Exception:  # a schema can be wrong in as many ways as there are keywords
            return False

    def is_a(self, value: Any, kinds: Any) -> bool:
        """Whether the value is of a type that `kinds` names, as the keyword `type` does."""
        for kind in kinds if isinstance(kinds, list) else [kinds]:
            with contextlib.suppress(Exception):  # there may be no such type
                if self._validator.is_type(value, kind):
                    return True
        return False

    def resolve(self, schema: Any) -> Any:
        """The schema behind `$ref`s; an empty one where they lead out of the document, or for ever on.

        Raises CompletionFailed where one leads to nothing in it.
        """
        for _ in range(_LONGEST_CHAIN):
            if not isinstance(schema, Mapping) or not isinstance(schema.get("$ref"), str):
                return schema
            beside = without(schema, "$ref")
            target = self._target(schema["$ref"])
            if set(beside) - SAYS_NOTHING:
                return {"allOf": [target, beside]}
            schema = {**target, **beside} if isinstance(target, Mapping) else target
        return {}

    def _target(self, reference: str) -> Any:
        if not reference.startswith("#"):
            return {}
        try:
            return self._resolver.lookup(reference).contents
        except Exception:  # `referencing` has an error for each way to lead nowhere
            reason = f"the schema is not valid: {reference[:100]!r} leads to nothing in it"
            raise CompletionFailed(reason=reason) from None


def without(schema: Mapping[str, Any], *keywords: str) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in keywords}
