"""A runner's process as it was when it began, put back after each task.

Authors keep what they like in their own modules: that is what a warm process is for. What belongs to
the process, the interpreter or the standard library is put back, and a process that cannot be put back,
or in which something still goes on, is spent: it gets no other task.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from . import interpreter_state, process_state


class Part(Protocol):
    """One thing that a task may change; made before the first task, it knows how it was then."""

    def restore(self) -> None:
        """Put it back; cheap where nothing has changed. Raises when that is not possible."""
        ...


class RunnerState:
    """What tasks find when they begin in this process. Made, and restored, on its main thread."""

    def __init__(self, *, with_life: bool = False) -> None:
        """`with_life`: a lifespan is open, which has files and children, and may open more files."""
        # First what the restoring itself stands on.
        self._parts: Sequence[Part] = (*interpreter_state.parts(), *process_state.parts(with_life=with_life))

    def restore(self) -> bool:
        """Put everything back; False when the process is spent, for whatever reason."""
        try:
            for part in self._parts:
                part.restore()
        except BaseException:  # also what a handler or hook of the tool's raises meanwhile
            return False
        return True
