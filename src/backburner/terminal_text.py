"""Text that is not ours, made safe for a terminal.

What a tool logs, returns or is named may hold escape sequences that move the cursor, rename the
window or type for the user. None of that may reach a terminal.
"""

from __future__ import annotations

import json
import re

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
