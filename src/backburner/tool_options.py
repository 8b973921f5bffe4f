"""The options of a tool as its author writes them, checked by name and by value."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .errors import ToolDefinitionError
from .retry import NO_RETRY, Retry
from .task import Resources
from .times import duration_s

_Rule = tuple[Callable[[Any], bool], str]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_amount(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool) and value > 0)


def _is_retries(value: Any) -> bool:
    return value is None or isinstance(value, Retry) or (type(value) is int and value >= 0)


def _is_texts(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, Mapping) and all(map(_is_text, value))


def _is_functions(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(callable, value.values()))


_TEXT: _Rule = (_is_text, "text")
_FLAG: _Rule = (_is_flag, "True or False")
_AMOUNT: _Rule = (_is_amount, "a number over 0")
_CHECKED_LATER: _Rule = (lambda value: True, "")  # by `duration_s`, or by ToolSpec

#: Each option with its rule.
_OPTIONS: Mapping[str, _Rule] = {
    "title": _TEXT,
    "description": _TEXT,
    "task": _CHECKED_LATER,
    "queue": (lambda value: value is None or _is_text(value), "the name of a queue"),
    "timeout": _CHECKED_LATER,
    "retries": (_is_retries, "a number from 0 on, or a Retry"),
    "estimate": _CHECKED_LATER,
    "answer": _CHECKED_LATER,
    "ttl": _CHECKED_LATER,
    "isolation": _CHECKED_LATER,
    "idempotent": _FLAG,
    "cpu": _AMOUNT,
    "memory_mb": _AMOUNT,
    "scratch_mb": _AMOUNT,
    "secrets": (_is_texts, "names of inputs"),
    "ask_first": (
        lambda value: value is None or callable(value) or isinstance(value, Mapping),
        "questions by key, or a function of the inputs",
    ),
    "asks": _CHECKED_LATER,
    "join": _CHECKED_LATER,
    "on_cancel": _CHECKED_LATER,
    "requires_task_id": _FLAG,
    "suggest": (_is_functions, "a function for each argument"),
    "max_running": _CHECKED_LATER,
    "max_starts_per_minute": _CHECKED_LATER,
    "concurrency_key": _CHECKED_LATER,
    "max_running_per_key": _CHECKED_LATER,
    "card": _FLAG,
}
#: Options for functions of the app alone: a server's tools have these from their framework.
_OF_FUNCTIONS: Mapping[str, _Rule] = {
    "name": _TEXT,
    "output_schema": (lambda value: value is None or isinstance(value, dict), "a JSON schema"),
}


def tool_options(tool_name: str, options: Mapping[str, Any], *, of_function: bool = False) -> dict[str, Any]:
    """The fields of a ToolSpec for these options. Raises ToolDefinitionError and ConfigError."""
    known = {**_OPTIONS, **_OF_FUNCTIONS} if of_function else _OPTIONS
    for option, value in options.items():
        if option not in known:
            raise ToolDefinitionError(tool_name=tool_name, reason=_unknown(option, known))
        fits, wanted = known[option]
        if not fits(value):
            reason = f"{option}={value!r} is not {wanted}"
            raise ToolDefinitionError(tool_name=tool_name, reason=reason)
    fields = dict(options)
    amounts = {name: fields.pop(name, None) for name in ("cpu", "memory_mb", "scratch_mb")}
    for option in ("timeout", "ttl"):
        given = fields.pop(option, None)
        fields[f"{option}_s"] = None if given is None else duration_s(given, f"{tool_name}.{option}")
    secrets = fields.pop("secrets", ())
    fields["secrets"] = frozenset([secrets] if isinstance(secrets, str) else secrets)
    fields["retry"] = retry_policy(fields.pop("retries", None))
    fields["resources"] = Resources(**amounts)
    return fields


def retry_policy(retries: int | Retry | None) -> Retry:
    """`retries=2` tries every failure twice more; a Retry says more; None only what is clearly transient."""
    if retries is None:
        return Retry()
    if isinstance(retries, Retry):
        return retries
    return Retry(max_attempts=retries + 1, on=("*",)) if retries else NO_RETRY


def _unknown(option: Any, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(str(option), known, n=1)
    meant = f", did you mean {near[0]!r}?" if near else ";"
    return f"there is no option {option!r}{meant} known: {', '.join(sorted(known))}"
