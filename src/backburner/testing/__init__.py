"""Support for tests of your own: tasks that run inline, and a clock that the test moves.

from backburner.testing import FakeClock, inline
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .clock import FakeClock as FakeClock

if TYPE_CHECKING:
    from .inline import inline as inline

__all__ = ["FakeClock", "inline"]


def __getattr__(name: str) -> Any:
    # Imported on first use: pytest imports this package in each run, for the plugin.
    if name != "inline":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .inline import inline

    globals()[name] = inline  # instead of the submodule, which the import has put there
    return inline
