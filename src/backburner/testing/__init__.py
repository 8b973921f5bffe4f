"""Support for tests of your own: tasks that run inline, and a clock that the test moves.

from backburner.testing import FakeClock, inline
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .inline import inline as inline

__all__ = ["FakeClock", "inline"]


class FakeClock:
    """Time for tests: constant until `advance`, or until the wall clock is set."""

    def __init__(self, now_ms: int = 1_800_000_000_000) -> None:
        self._now_ms = now_ms
        self._steady_ms = 1_000_000

    def now_ms(self) -> int:
        return self._now_ms

    def steady_ms(self) -> int:
        return self._steady_ms

    def uptime_ms(self) -> int:
        return self._steady_ms

    def advance(self, seconds: float) -> None:
        self._now_ms += int(seconds * 1000)
        self._steady_ms += int(seconds * 1000)

    def set_wall_clock(self, by_seconds: float) -> None:
        """Let the wall clock jump; no time passes."""
        self._now_ms += int(by_seconds * 1000)


def __getattr__(name: str) -> Any:
    # Imported on first use: pytest imports this package in each run, for the plugin.
    if name != "inline":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .inline import inline

    globals()[name] = inline  # instead of the submodule, which the import has put there
    return inline
