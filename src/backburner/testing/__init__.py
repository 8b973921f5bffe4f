"""For tests of your own: tasks that run inline, a clock that you move, and the suites that any store and any
engine must pass.

    from backburner.testing import EngineContract, FakeClock, StoreContract, inline

The suites need pytest, and that for stores hypothesis too.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .clock import FakeClock as FakeClock
    from .engine import EngineContract as EngineContract
    from .engine_tools import contract_app as contract_app
    from .inline import inline as inline
    from .store import StoreContract as StoreContract

# Imported when first used: the runners of an engine under test need neither pytest nor hypothesis.
_HOMES = {
    "FakeClock": "clock",
    "EngineContract": "engine",
    "contract_app": "engine_tools",
    "StoreContract": "store",
    "inline": "inline",
}
__all__ = ["EngineContract", "FakeClock", "StoreContract", "contract_app", "inline"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'backburner.testing' has no attribute {name!r}")
    home = f"{__name__}.{_HOMES[name]}"
    if name == "EngineContract" and home not in sys.modules:
        import pytest

        pytest.register_assert_rewrite(home)
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value
