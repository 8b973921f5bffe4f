"""For tests of your own: a clock that you move, and the suite that any store must pass.

    from backburner.testing import FakeClock, StoreContract

The suite needs pytest and hypothesis.
"""

import pytest

pytest.register_assert_rewrite("backburner.testing.store")

from .clock import FakeClock  # noqa: E402
from .store import StoreContract  # noqa: E402

__all__ = ["FakeClock", "StoreContract"]
