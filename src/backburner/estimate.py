"""How long will it take: before a task starts, and while it runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from statistics import median, quantiles
from typing import Any

from .store import Runtime, Store
from .task import Progress
from .times import LONGEST_S

Estimate = float | Callable[[Mapping[str, Any]], float] | None

#: So many runs of like-sized inputs are worth more than all runs together.
_ENOUGH_IN_BUCKET = 5
_QUANTILE = 75
_REMEMBER_S = 0.5


def hint(estimate: Estimate, inputs: Mapping[str, Any]) -> float | None:
    """What the author says: a fixed number, or a function of the inputs. One that fails says nothing."""
    if callable(estimate):
        try:
            seconds = float(estimate(inputs))
        except Exception:
            return None
        return seconds if 0 <= seconds <= LONGEST_S else None
    return None if estimate is None else float(estimate)


class Experience:
    """What the latest runs of one tool teach. Each lesson is worked out once."""

    def __init__(self, runs: Sequence[Runtime]) -> None:
        self._runs = runs
        self._by_bucket: dict[int, float | None] = {}

    def estimate(self, inputs_bytes: int, hint_s: float | None) -> float | None:
        """What experience makes of the author's hint; without a hint, a high quantile of like-sized runs."""
        if hint_s is not None:
            return hint_s * self._correction
        bucket = inputs_bytes.bit_length()
        if bucket not in self._by_bucket:
            self._by_bucket[bucket] = self._learned(bucket)
        return self._by_bucket[bucket]

    @cached_property
    def _correction(self) -> float:
        ratios = [run.seconds / run.hint_s for run in self._runs if run.hint_s]
        return median(ratios) if ratios else 1.0

    def _learned(self, bucket: int) -> float | None:
        alike = [run.seconds for run in self._runs if run.inputs_bytes.bit_length() == bucket]
        sample = alike if len(alike) >= _ENOUGH_IN_BUCKET else [run.seconds for run in self._runs]
        if len(sample) < 2:
            return sample[0] if sample else None
        return max(0.0, quantiles(sample, n=100, method="inclusive")[_QUANTILE - 1])


class Estimator:
    """Estimates for one store, with a short memory so that a burst of submissions reads history once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._experiences: dict[str, tuple[float, Experience]] = {}

    def estimate(self, tool_name: str, inputs_bytes: int, hint_s: float | None) -> float | None:
        """Expected seconds of run time, or None when nothing is known."""
        return self._experience(tool_name).estimate(inputs_bytes, hint_s)

    def _experience(self, tool_name: str) -> Experience:
        now = time.monotonic()
        with self._lock:
            remembered = self._experiences.get(tool_name)
        if remembered is not None and now - remembered[0] < _REMEMBER_S:
            return remembered[1]
        experience = Experience(self._store.runtimes(tool_name))
        with self._lock:
            self._experiences[tool_name] = (now, experience)
        return experience


def eta_s(progress: Progress | None, elapsed_s: float, estimate_s: float | None) -> float | None:
    """Expected seconds left of a running task, from its progress and, early on, from its estimate."""
    from_estimate = None if estimate_s is None else max(0.0, estimate_s - elapsed_s)
    percent = progress.percent if progress else None
    if not percent:
        return from_estimate
    from_progress = elapsed_s * (100 - percent) / percent
    if from_estimate is None:
        return from_progress
    trust = min(1.0, percent / 20)
    return trust * from_progress + (1 - trust) * from_estimate


def poll_after_ms(left_s: float | None, elapsed_s: float) -> int:
    """When to look again: soon when the end is near or the tool is quick, seldom when it takes long."""
    if left_s is None:
        left_s = elapsed_s
    return int(min(max(left_s * 1000 / 8, 50), 10_000))
