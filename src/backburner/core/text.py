"""Safe text: terminal escapes and redaction of secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

#: What moves the cursor, turns the direction of text or cannot be seen at all. A test holds it to Unicode.
_UNSAFE = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and newline, DEL, C1
    "\u2028\u2029\ud800-\udfff"  # line separators, lone surrogates
    # What only says how others are to be shown (the category Cf).
    "\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\ufeff\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
    # Letters and marks that are drawn as nothing.
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0"
    "]"
)


def printable(text: object, *, lines: bool = False) -> str:
    """`text` with every control character made visible; without `lines`, newlines too."""
    plain = str(text)
    if plain.isascii() and plain.isprintable():  # as most is, which takes far less time to see
        return plain
    plain = _UNSAFE.sub(_visible, plain)
    return plain if lines else plain.replace("\n", "\\n").replace("\t", " ")


def printable_json(text: str) -> str:
    """JSON text with every such character as a JSON escape, so that it stays the same JSON."""
    return _UNSAFE.sub(lambda found: json.dumps(found[0])[1:-1], text)


def _visible(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


HIDDEN = "***"
#: A shorter text is part of too many others to be looked for in them.
_SHORTEST = 4
#: A line of a longer text, such as a key, is hidden where it stands alone.
_SHORTEST_LINE = 8
#: How pydantic quotes a value: cut in the middle if it is long, and so not to be found by its text.
_QUOTED = re.compile(r"input_value=.*?(?=, input_type=)", re.DOTALL)


class Redaction:
    """Hides the values of some inputs in texts: whole, by their lines, and as `repr` and JSON write them."""

    def __init__(self, inputs: Mapping[str, Any], secrets: Iterable[str]) -> None:
        texts = {form for name in secrets if name in inputs for form in _forms(inputs[name])}
        longest_first = sorted(texts, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if texts else None

    def text(self, text: str) -> str:
        text = _QUOTED.sub(f"input_value={HIDDEN}", text)
        return self._pattern.sub(HIDDEN, text) if self._pattern else text

    def value(self, value: Any) -> Any:
        """The same value with every text in it, however deep, without the secrets."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.value(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(inner) for inner in value]
        if isinstance(value, int | float) and not isinstance(value, bool):
            return self.text(str(value)) if self.text(str(value)) == HIDDEN else value
        return value


def _forms(secret: Any) -> Iterator[str]:
    """The texts by which a secret may show."""
    if isinstance(secret, Mapping):
        for inner in secret.values():
            yield from _forms(inner)
    elif isinstance(secret, list | tuple):
        for inner in secret:
            yield from _forms(inner)
    elif isinstance(secret, str):
        lines = [line.strip() for line in secret.splitlines() if len(line.strip()) >= _SHORTEST_LINE]
        for text in {secret, secret.strip(), *lines}:
            written = {
                text,
                repr(text)[1:-1],
                json.dumps(text)[1:-1],
                json.dumps(text, ensure_ascii=False)[1:-1],
            }
            yield from (form for form in written if len(form) >= _SHORTEST)
    elif isinstance(secret, int | float) and not isinstance(secret, bool) and len(str(secret)) >= _SHORTEST:
        yield str(secret)
