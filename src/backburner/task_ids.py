"""Task ids: made, checked, and found by their beginning. They sort by age."""

from __future__ import annotations

import base64
import re
import secrets

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32: no I, L, O, U; sorts by value
_CROCKFORD = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", _ALPHABET.encode())
_TIME_CHARS, _RANDOM_CHARS = 10, 26
_RANDOM_BITS = 5 * _RANDOM_CHARS
_LAST_MS = 2 ** (5 * _TIME_CHARS) - 1
_ID_BYTES = 25  # base 32 turns five bytes into eight characters, so four characters are spare
_SPARE_BITS = 20
_TASK_ID = re.compile(rf"tsk_[{_ALPHABET}]{{{_TIME_CHARS + _RANDOM_CHARS}}}")
_BEGINNING = re.compile(rf"(?:tsk_)?([{_ALPHABET}]{{1,{_TIME_CHARS + _RANDOM_CHARS}}})", re.IGNORECASE)


def new_task_id(now_ms: int) -> str:
    """`tsk_`, the time (so that ids sort by age) and 130 random bits (so that they cannot be guessed)."""
    return _task_id(now_ms, secrets.randbits(_RANDOM_BITS))


def first_task_id(now_ms: int) -> str:
    """What no id of a task of that time, or of a later one, sorts before."""
    return _task_id(min(max(0, now_ms), _LAST_MS), 0)


def _task_id(ms: int, chance: int) -> str:
    number = (ms << _RANDOM_BITS | chance) << _SPARE_BITS
    chars = base64.b32encode(number.to_bytes(_ID_BYTES, "big"))[: _TIME_CHARS + _RANDOM_CHARS]
    return "tsk_" + chars.translate(_CROCKFORD).decode()


def ids_that_begin(text: str) -> tuple[str, str]:
    """The first and the last that a task id which begins so can be."""
    chars = len("tsk_") + _TIME_CHARS + _RANDOM_CHARS
    return text.ljust(chars, _ALPHABET[0]), text.ljust(chars, _ALPHABET[-1])


def time_of_id(task_id: str) -> int:
    """When a task was made, by the clock of its maker, in milliseconds."""
    ms = 0
    for char in task_id.removeprefix("tsk_")[:_TIME_CHARS]:
        ms = ms * len(_ALPHABET) + _ALPHABET.index(char)
    return ms


def is_task_id(text: str) -> bool:
    """Whether `text` has the form of a task id; says nothing about such a task being there."""
    return _TASK_ID.fullmatch(text) is not None


def beginning_of_id(text: str) -> str | None:
    """What ids begin with for which `text` is short: in capitals, `tsk_` put before it. None if none can."""
    found = _BEGINNING.fullmatch(text.removesuffix("…"))  # as a narrow list may show it
    return None if found is None else f"tsk_{found[1].upper()}"
