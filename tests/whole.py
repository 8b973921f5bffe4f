"""The tests that `make test` leaves to `make test-whole`, because others show the same in less time.

A single test is marked `@pytest.mark.whole`. A class that inherits a contract suite names in `REPRESENTATIVE`
the tests of it that `make test` runs.
"""

import os
from typing import Any

import pytest

WHOLE = bool(os.environ.get("BACKBURNER_WHOLE_SUITE"))


def left_out(item: pytest.Item) -> bool:
    """Return whether this run leaves the test to `make test-whole`."""
    if WHOLE:
        return False
    if item.get_closest_marker("whole"):
        return True
    suite: Any = getattr(item, "cls", None)
    name = getattr(item, "originalname", item.name)
    return hasattr(suite, "REPRESENTATIVE") and name not in {*suite.REPRESENTATIVE, *vars(suite)}
