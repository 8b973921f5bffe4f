"""Secrets kept out of what people see: errors like to quote what they were given."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

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
