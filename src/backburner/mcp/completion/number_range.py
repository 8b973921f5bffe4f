"""Numbers that a JSON schema allows, for people to choose from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

#: A range with fewer numbers is offered whole.
_FEW = 20


def numbers(schema: Mapping[str, Any], partial: str, *, whole: bool) -> Iterator[int | float]:
    """All numbers of a range when they are few, or else some of them; and those that begin with `partial`.

    They are rounded to the schema's step, and not checked in any other way.
    """
    step = _decimal(schema.get("multipleOf")) or (Decimal(1) if whole else None)
    low, high = _bound(schema, "minimum", step, up=True), _bound(schema, "maximum", step, up=False)
    if low is not None and high is not None and low > high:
        return
    for number in (*_within(low, high, step), *_begun(partial)):
        rounded = (number / step).to_integral_value() * step if step else number
        yield int(rounded) if rounded == int(rounded) else float(rounded)


def _within(low: Decimal | None, high: Decimal | None, step: Decimal | None) -> list[Decimal]:
    """Numbers from `low` to `high`: all when they are few, or else both ends and the quarters between."""
    if low is None or high is None:
        return [bound for bound in (low, high) if bound is not None]
    if step and (high - low) / step < _FEW:
        return [low + step * place for place in range(int((high - low) / step) + 1)]
    return [low + (high - low) * quarter / 4 for quarter in range(5)]


def _begun(partial: str) -> list[Decimal]:
    """The number that was typed, and those that are it with one more digit."""
    typed = _decimal(partial)
    if typed is None:
        return []
    return [typed, *(typed * 10 + digit for digit in range(10) if typed == int(typed))]


def _bound(schema: Mapping[str, Any], name: str, step: Decimal | None, *, up: bool) -> Decimal | None:
    """The outermost allowed number on one side; without a step, it may be one that the schema excludes."""
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
