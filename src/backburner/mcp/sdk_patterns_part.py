"""The parser of the standard library's `re`, which has no public name.

No other parser agrees with `re` in everything.
"""

from __future__ import annotations

import importlib
import re
import warnings
from typing import Any, NamedTuple


class ParsedPattern(NamedTuple):
    """A pattern as `re` reads it.

    `steps` are pairs of an operation, whose `str` is its name (`LITERAL`, `MAX_REPEAT`, …), and its
    argument; sequences of steps may stand within arguments. `shortest` is the least number of characters
    that a text has which matches.
    """

    steps: Any
    shortest: int


def parse_pattern(pattern: str) -> ParsedPattern:
    """Raises `re.error`, RecursionError or OverflowError for what `re` does not compile."""
    parser: Any = importlib.import_module("re._parser")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        re.compile(pattern)
        steps = parser.parse(pattern)
    return ParsedPattern(steps, steps.getwidth()[0])


#: A pattern with the operations that patterns mostly have, and how its steps are written down.
_PATTERN = r"a[^b-d\d]{2}(e|fg)"
_STEPS = (
    "[(LITERAL, 97),"
    " (MAX_REPEAT, (2, 2, [(IN, [(NEGATE, None), (RANGE, (98, 100)), (CATEGORY, CATEGORY_DIGIT)])])),"
    " (SUBPATTERN, (1, 0, 0, [(BRANCH, (None, [[(LITERAL, 101)], [(LITERAL, 102), (LITERAL, 103)]]))]))]"
)


def check_pattern_parser() -> None:
    """Raises RuntimeError when this Python's parser is gone, or gives other steps than those known here."""
    try:
        parsed = parse_pattern(_PATTERN)
    except Exception as error:
        raise RuntimeError("`re._parser` of this Python cannot be used") from error
    if (repr(parsed.steps), parsed.shortest) != (_STEPS, 4):
        raise RuntimeError(f"`re._parser` of this Python gives other steps: {parsed}")
