"""The tests that `make test` leaves to `make test-whole`, because others show the same in less time.

- `@pytest.mark.whole` leaves out a test.
- `@pytest.mark.whole(but_first=n)` leaves out its cases but for the first n.
- A class that inherits a contract suite names in `REPRESENTATIVE` the tests of it that `make test` runs.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

WHOLE = bool(os.environ.get("BACKBURNER_WHOLE_SUITE"))
#: How many cases a fuzz test sends.
FUZZ_CASES = int(os.environ.get("BACKBURNER_FUZZ_CASES", "1000" if WHOLE else "200"))


def left_out(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """Yield the tests that this run leaves to `make test-whole`."""
    if WHOLE:
        return
    seen: Counter[str] = Counter()
    for item in items:
        suite: Any = getattr(item, "cls", None)
        name = getattr(item, "originalname", item.name)
        if hasattr(suite, "REPRESENTATIVE") and name not in {*suite.REPRESENTATIVE, *vars(suite)}:
            yield item
        elif mark := item.get_closest_marker("whole"):
            case = item.nodeid.partition("[")[0]
            seen[case] += 1
            if seen[case] > mark.kwargs.get("but_first", 0):
                yield item
