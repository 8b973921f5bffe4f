"""Runtime estimates before a task starts, and time left while it runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from statistics import median, quantiles
from typing import Any

from ..core.task import Progress, Task
from ..core.times import LONGEST_S
from ..errors import StoreError
from ..store.protocol import Runtime, Store

Estimate = float | Callable[[Mapping[str, Any]], float] | None

#: So many runs of like-sized inputs are worth more than all runs together.
_ENOUGH_IN_BUCKET = 5
_QUANTILE = 75
_REMEMBER_S = 0.5
#: No estimate that is told is shorter.
_LEAST_S = 1.0
#: The guess while nothing is known of a tool, nor of the app's other tools.
DEFAULT_ESTIMATE_S = 60.0
#: How long a client that knows nothing of a tool waits at least before it looks again.
_UNKNOWN_POLL_MS = 2000
#: What is only good for a guess may be older.
_REMEMBER_FOR_GUESS_S = 5.0


class EstimateSource(StrEnum):
    """Origin of an estimate, best first. The last two are guesses, on which no decision depends."""

    AUTHOR = "author"
    LEARNED = "learned"
    OTHER_TOOLS = "other_tools"
    DEFAULT = "default"

    @property
    def words(self) -> str:
        return _WORDS[self]


_WORDS = {
    EstimateSource.AUTHOR: "as the tool's author says",
    EstimateSource.LEARNED: "by earlier runs",
    EstimateSource.OTHER_TOOLS: "a guess by the app's other tools",
    EstimateSource.DEFAULT: "a guess, since nothing is known yet",
}


@dataclass(frozen=True, slots=True)
class ExpectedRuntime:
    """Expected runtime in seconds, and its origin."""

    seconds: float
    source: EstimateSource

    @property
    def is_guess(self) -> bool:
        """Return whether nothing is known of the tool itself."""
        return self.source in (EstimateSource.OTHER_TOOLS, EstimateSource.DEFAULT)


def hint(estimate: Estimate, inputs: Mapping[str, Any]) -> float | None:
    """Return the author's estimate: a number, or a function of the inputs. None for an unusable one."""
    try:
        seconds = None if estimate is None else float(estimate(inputs) if callable(estimate) else estimate)
    except Exception:
        return None
    return seconds if seconds is not None and 0 <= seconds <= LONGEST_S else None


class Experience:
    """Statistics of the latest runs of one tool, each computed once."""

    def __init__(self, runs: Sequence[Runtime]) -> None:
        self._runs = runs
        self._by_bucket: dict[int, float | None] = {}

    def estimate(self, inputs_bytes: int, hint_s: float | None, inputs_hash: str = "") -> float | None:
        """Return the author's hint, corrected by experience, or a high quantile of earlier runs.

        Runs with the same inputs count first, then runs with inputs of a like size.
        """
        if hint_s is not None:
            return min(hint_s * self._correction, LONGEST_S)
        if self.has_run(inputs_hash):
            return _usual_s(self._by_inputs[inputs_hash])
        bucket = inputs_bytes.bit_length()
        if bucket not in self._by_bucket:
            self._by_bucket[bucket] = self._learned(bucket)
        return self._by_bucket[bucket]

    def has_run(self, inputs_hash: str) -> bool:
        """Return whether a run had these inputs."""
        return bool(inputs_hash) and inputs_hash in self._by_inputs

    @cached_property
    def typical_s(self) -> float | None:
        """Median runtime, for any inputs."""
        return median(run.seconds for run in self._runs) if self._runs else None

    @cached_property
    def _by_inputs(self) -> Mapping[str, Sequence[float]]:
        found: dict[str, list[float]] = {}
        for run in self._runs:
            found.setdefault(run.inputs_hash, []).append(run.seconds)
        return found

    @cached_property
    def _correction(self) -> float:
        ratios = [min(run.seconds / run.hint_s, LONGEST_S) for run in self._runs if run.hint_s]
        return median(ratios) if ratios else 1.0

    def _learned(self, bucket: int) -> float | None:
        alike = [run.seconds for run in self._runs if run.inputs_bytes.bit_length() == bucket]
        return _usual_s(alike if len(alike) >= _ENOUGH_IN_BUCKET else [run.seconds for run in self._runs])


def _usual_s(sample: Sequence[float]) -> float | None:
    """Return a high quantile; None for an empty sample."""
    if len(sample) < 2:
        return sample[0] if sample else None
    return max(0.0, quantiles(sample, n=100, method="inclusive")[_QUANTILE - 1])


class Estimator:
    """Estimates for the tools of one app, with a short memory so that a burst of calls reads history once."""

    def __init__(self, store: Store, tool_names: Callable[[], Sequence[str]]) -> None:
        self._store = store
        self._tool_names = tool_names
        self._default = ExpectedRuntime(DEFAULT_ESTIMATE_S, EstimateSource.DEFAULT)
        self._lock = threading.Lock()
        self._experiences: dict[str, tuple[float, Experience]] = {}

    def estimate(
        self, tool_name: str, inputs_bytes: int, hint_s: float | None, inputs_hash: str = ""
    ) -> float | None:
        """Expected seconds of run time, or None when nothing is known of the tool."""
        return self._experience(tool_name, _REMEMBER_S).estimate(inputs_bytes, hint_s, inputs_hash)

    def has_run(self, tool_name: str, inputs_hash: str) -> bool:
        """Return whether one of the tool's latest runs had these inputs. Reads the store."""
        return self._experience(tool_name, _REMEMBER_S).has_run(inputs_hash)

    def expected(self, task: Task) -> ExpectedRuntime:
        """Return the estimate made at submission, else a guess. Never fails.

        It is at least a second, since queueing alone can take as long.
        """
        if task.estimate_s is None:
            return self._guess(task.tool_name)
        source = EstimateSource.LEARNED if task.hint_s is None else EstimateSource.AUTHOR
        return ExpectedRuntime(max(_LEAST_S, task.estimate_s), source)

    def _guess(self, tool_name: str) -> ExpectedRuntime:
        others = [name for name in self._tool_names() if name != tool_name]
        try:
            known = [self._experience(name, _REMEMBER_FOR_GUESS_S).typical_s for name in others]
        except StoreError:
            return self._default
        typical = [seconds for seconds in known if seconds is not None]
        if not typical:
            return self._default
        return ExpectedRuntime(max(_LEAST_S, median(typical)), EstimateSource.OTHER_TOOLS)

    def _experience(self, tool_name: str, remember_s: float) -> Experience:
        now = time.monotonic()
        with self._lock:
            remembered = self._experiences.get(tool_name)
        if remembered is not None and now - remembered[0] < remember_s:
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
    """Return the poll interval: short near the end or for a quick tool, long for a slow one."""
    if left_s is None:
        left_s = elapsed_s
    return int(min(max(left_s * 1000 / 8, 50), 10_000))


def advised_poll_ms(task: Task, poll_ms: int) -> int:
    """Return the poll interval for a model, for which each poll costs a turn."""
    is_unknown = task.estimate_s is None and (task.progress is None or not task.progress.percent)
    return max(poll_ms, _UNKNOWN_POLL_MS) if is_unknown else poll_ms
