"""What PostgreSQL and its driver say went wrong, as errors of ours."""

from __future__ import annotations

import psycopg

from ..errors import (
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreRefused,
    StoreUnavailable,
)
from .transaction import UNFIT

_REFUSALS = (psycopg.DataError, psycopg.IntegrityError, *UNFIT)
_KINDS: tuple[tuple[tuple[str, ...], type[StoreError]], ...] = (
    (("53100", "53200"), StoreFull),
    (("25006", "42501"), StoreReadOnly),
    (("55P03", "40P01", "40001"), StoreBusy),
    (("XX001", "XX002"), StoreCorrupt),
)


def from_postgres(url: str, error: Exception) -> StoreError:
    """Of an error of PostgreSQL's, or of its driver's."""
    state = getattr(error, "sqlstate", None) or ""
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if isinstance(error, _REFUSALS) or state.startswith("54"):
        return StoreRefused(store=url, reason=reason)
    for states, kind in _KINDS:
        if state in states:
            return kind(store=url, reason=reason)
    unreachable = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    kind = StoreUnavailable if unreachable else StoreError
    return kind(store=url, reason=reason)
