"""Text that is not ours, made safe for a terminal.

What a tool logs, returns or is named may hold escape sequences that move the cursor, rename the
window or type for the user. None of that may reach a terminal.
"""

from __future__ import annotations

import re

# C0 without tab and newline, DEL, C1, line separators, what turns the direction of text, lone surrogates.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def printable(text: object, *, lines: bool = False) -> str:
    """`text` with every control character made visible; without `lines`, newlines too."""
    plain = _UNSAFE.sub(_visible, str(text))
    return plain if lines else plain.replace("\n", "\\n").replace("\t", " ")


def printable_json(text: str) -> str:
    """JSON text with every such character as a JSON escape, so that it stays the same JSON."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _visible(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
