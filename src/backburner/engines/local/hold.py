"""How long a supervisor's runners may run: until its hold on their tasks is over (docs/decisions/0013)."""

from __future__ import annotations

from ...clock import SystemClock


class Hold:
    """The right to run tasks, until a moment. Supervisor and zygotes each have one, and it ends by itself.

    Nobody else may start the tasks before that moment has passed. Where others can be on hosts that do
    not sleep when this one does, its clock counts sleep.
    """

    def __init__(self, *, counts_sleep: bool) -> None:
        clock = SystemClock()
        self.now_ms = clock.uptime_ms if counts_sleep else clock.steady_ms
        self.counts_sleep = counts_sleep
        self.until = 0

    def left_ms(self) -> int:
        return max(0, self.until - self.now_ms())

    @property
    def is_over(self) -> bool:
        return self.left_ms() == 0
