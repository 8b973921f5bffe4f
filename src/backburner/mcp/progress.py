"""Progress tokens: tool calls in flight, their progress and the clients to notify."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import random
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ..core import json_text
from ..core.task import Progress, Task
from ..core.times import Clock, SystemClock
from ..errors import InvalidRequest, NoClient, ProgressTimeout, TokenNotFound

Token = str | int

#: Increment where the number is the same but the message is new: progress must grow.
_HAIR = 1e-9
_KEPT, _LONGEST_KEPT, _LARGEST_KEPT = "progressToken", 1000, 2**63


class Client(Protocol):
    """Receiver of progress notifications, compared by identity."""

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification; returns at once."""
        ...


@dataclass(frozen=True, slots=True)
class ProgressUpdate:
    """Progress of a call: `percentage`, or `absolute` as (current, total), and a message.

    The total is None for a count without an end.
    """

    percentage: float | None = None
    absolute: tuple[float, float | None] | None = None
    message: str | None = None
    context: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.percentage is None and self.absolute is None:
            raise InvalidRequest(reason="progress needs a percentage, or a current and a total number")

    @classmethod
    def of(cls, progress: Progress | None, message: str | None = None) -> ProgressUpdate:
        """Return the progress of a task, or zero if it has none; `message` replaces its own."""
        if progress is None:
            return cls(absolute=(0, None), message=message)
        counted = None if progress.step is None else (progress.step, progress.step_total)
        if counted is None and progress.percent is None:
            counted = (0, None)
        return cls(progress.percent, counted, message or progress.message, progress.context)

    @property
    def part(self) -> float | None:
        """Completed fraction from 0 to 1; None when the total is unknown."""
        if self.percentage is not None:
            return self.percentage / 100
        current, total = self.absolute or (0, None)
        return current / total if total is not None and total > 0 else None


class ProgressScale:
    """Scale of one token's progress, fixed for the life of the token.

    A token chosen by the client gets the tool's own counts, such as 300 of 1000; the first progress with a
    total decides. Percentages, and our own tokens (`ProgressScale(1)`), use fractions of 1.
    """

    __slots__ = ("_last", "_told", "_total")

    def __init__(self, total: float | None = None) -> None:
        self._total = total
        self._told: float = -1
        self._last: ProgressUpdate | None = None

    def params(self, token: Token, update: ProgressUpdate, *, anyway: bool = False) -> dict[str, Any] | None:
        """Return `notifications/progress` parameters; None if nothing is new, unless `anyway`.

        `progress` must grow with each notification. Percentage and context are also in `_meta`, because typed
        clients drop unknown fields.
        """
        if update == self._last and not anyway:
            return None
        value = max(0, self._place(update))
        if value <= self._told:
            value = self._told + _HAIR * max(1, self._told)
        self._told, self._last = value, update
        extra: dict[str, Any] = {}
        if update.part is not None and self._total is not None:
            extra["percentage"] = min(100.0, round(100 * value / self._total, 2))
        if update.context:
            extra["context"] = dict(update.context)
        shown = {"progressToken": token, "progress": value, **extra, "_meta": extra}
        if self._total is not None:
            shown["total"] = self._total
        return shown if update.message is None else {**shown, "message": update.message}

    def _place(self, update: ProgressUpdate) -> float:
        current, total = update.absolute or (None, None)
        if self._total is None and update.part is not None:
            self._total = total if total is not None and total > 0 else 1
        if current is not None and (self._total is None or total == self._total):
            return current
        return self._told if update.part is None else round(update.part * (self._total or 1), 6)


@dataclass(frozen=True, slots=True)
class CallToken:
    """Token of a call: `key` is unique on the server, `given` is the client's own token, if any."""

    key: str
    given: Token | None
    scale: ProgressScale

    @classmethod
    def of(cls, key: str, given: Any) -> CallToken:
        return (
            cls(key, given, ProgressScale())
            if isinstance(given, str | int)
            else cls(key, None, ProgressScale(1))
        )

    @property
    def shown(self) -> Token:
        return self.key if self.given is None else self.given

    def shown_for(self, task: Task) -> Token:
        """Return the token by which the client knows the call once it is this task."""
        return token_of(task) if self.given is None else self.given


def token_meta(given: Any) -> dict[str, Any]:
    """Return the client's token as task metadata; empty if it cannot be stored."""
    if isinstance(given, str):
        keepable = len(given) <= _LONGEST_KEPT and json_text.storable(given) == given
    else:
        keepable = isinstance(given, int) and abs(given) < _LARGEST_KEPT
    return {_KEPT: given} if keepable else {}


def token_of(task: Task) -> Token:
    """Return the permanent token of a task's call: the client's own, or one derived from the task id."""
    given = task.meta.get(_KEPT)
    if isinstance(given, str | int):
        return given
    number = int.from_bytes(hashlib.sha256(task.task_id.encode()).digest()[:6], "big")
    return f"{task.submitted_at}-{number}"


@dataclass(slots=True)
class ToolCall:
    """A call in flight. `shown` is the client's token; times are from the steady clock."""

    tool_name: str
    client: Client | None
    shown: Token
    started_at: int
    active_at: int
    in_progress: bool = False
    update: ProgressUpdate | None = None
    scale: ProgressScale | None = None


class ProgressTokens:
    """Calls in flight by token; each lookup takes constant time.

    A call silent for `silence_s` is forgotten, unless it is `in_progress`. A timer on the event loop sweeps
    every `sweep_s` while there are calls; without a loop, the next call sweeps.
    """

    def __init__(self, *, silence_s: float = 30.0, sweep_s: float = 5.0, clock: Clock | None = None) -> None:
        self._silence_ms = int(silence_s * 1000)
        self._sweep_ms = int(sweep_s * 1000)
        self._clock = clock or SystemClock()
        self._numbers = itertools.count(random.randrange(10_000, 100_000))
        self._lock = threading.Lock()
        # In the order of their last activity, oldest first.
        self._calls: OrderedDict[Token, ToolCall] = OrderedDict()
        self._of_client: dict[int, set[Token]] = {}
        self._swept_at = 0
        self._timer: tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle] | None = None

    def __len__(self) -> int:
        return len(self._calls)

    def generate_token(self) -> str:
        """Return a unique token: the time in milliseconds, and a number."""
        return f"{self._clock.now_ms()}-{next(self._numbers)}"

    def track_tool_call(
        self,
        token: Token,
        tool_name: str,
        client: Client | None = None,
        *,
        shown: Token | None = None,
        scale: ProgressScale | None = None,
        in_progress: bool = False,
    ) -> None:
        """Start tracking a call; replaces a call with the same token.

        `shown` is the client's own token, which need not be unique. `scale` continues an earlier scale. A
        call that is `in_progress` may be silent until `cleanup_completed`.
        """
        now = self._clock.steady_ms()
        with self._lock:
            self._sweep(now)
            self._forget(token)
            own = token if shown is None else shown
            self._calls[token] = ToolCall(tool_name, client, own, now, now, in_progress, scale=scale)
            if client is not None:
                self._of_client.setdefault(id(client), set()).add(token)
            self._sweep_later()

    def send_progress(self, token: Token, update: ProgressUpdate | Mapping[str, Any]) -> None:
        """Store progress of a call and notify its client if it is new.

        An update may be a dict of its fields. Raises TokenNotFound, ProgressTimeout and NoClient.
        """
        update = update if isinstance(update, ProgressUpdate) else ProgressUpdate(**update)
        with self._lock:
            call = self._alive(token)
            call.update = update
            self._renew(token)
            if call.client is None:
                raise NoClient(token=token)
            call.scale = call.scale or ProgressScale()
            params = call.scale.params(call.shown, update)
        if params is not None:
            call.client.notify("notifications/progress", params)

    def touch(self, token: Token, update: ProgressUpdate | None = None) -> None:
        """Mark a call as active and store its progress, without a notification. Unknown calls are ignored."""
        with self._lock:
            call = self._calls.get(token)
            if call is not None:
                call.update = update or call.update
                self._renew(token)

    def get_progress(self, token: Token) -> ToolCall:
        """Return a call in flight. Raises TokenNotFound."""
        with self._lock:
            if token not in self._calls:
                raise TokenNotFound(token=token)
            return self._calls[token]

    def list_active_tokens(self) -> list[Token]:
        """Return the tokens of calls in flight, least active first."""
        with self._lock:
            return list(self._calls)

    def check_timeout(self, token: Token) -> None:
        """Raise ProgressTimeout for a call that was silent too long, and forget it; or TokenNotFound."""
        with self._lock:
            self._alive(token)

    def cleanup_completed(self, token: Token) -> None:
        """Stop tracking a call; unknown tokens are ignored."""
        with self._lock:
            self._forget(token)

    def client_gone(self, client: Client) -> list[Token]:
        """Forget all calls of a client; returns their tokens."""
        with self._lock:
            tokens = list(self._of_client.get(id(client), ()))
            for token in tokens:
                self._forget(token)
            return tokens

    def sweep(self) -> list[Token]:
        """Forget calls that were silent too long; returns their tokens."""
        with self._lock:
            return self._sweep(self._clock.steady_ms(), at_once=True)

    # -- under the lock

    def _alive(self, token: Token) -> ToolCall:
        call = self._calls.get(token)
        if call is None:
            raise TokenNotFound(token=token)
        if self._is_silent(call, self._clock.steady_ms()) and not call.in_progress:
            self._forget(token)
            raise ProgressTimeout(token=token, silence_s=self._silence_ms / 1000)
        return call

    def _is_silent(self, call: ToolCall, now: int) -> bool:
        return now - call.active_at > self._silence_ms

    def _sweep(self, now: int, *, at_once: bool = False) -> list[Token]:
        if now - self._swept_at < self._sweep_ms and not at_once:
            return []
        self._swept_at = now
        silent = list(
            itertools.takewhile(lambda token: self._is_silent(self._calls[token], now), self._calls)
        )
        for token in silent:
            if self._calls[token].in_progress:
                self._renew(token)
            else:
                self._forget(token)
        return [token for token in silent if token not in self._calls]

    def _renew(self, token: Token) -> None:
        self._calls[token].active_at = self._clock.steady_ms()
        self._calls.move_to_end(token)

    def _sweep_later(self) -> None:
        """Set the timer if there are calls and a running loop."""
        with contextlib.suppress(RuntimeError):  # no loop runs here
            loop = asyncio.get_running_loop()
            if self._calls and (self._timer is None or self._timer[0] is not loop):
                self._timer = (loop, loop.call_later(self._sweep_ms / 1000, self._time_to_sweep))

    def _time_to_sweep(self) -> None:
        with self._lock:
            self._timer = None
            self._sweep(self._clock.steady_ms(), at_once=True)
            self._sweep_later()

    def _forget(self, token: Token) -> None:
        call = self._calls.pop(token, None)
        if call is not None and call.client is not None:
            tokens = self._of_client[id(call.client)]
            tokens.discard(token)
            if not tokens:
                del self._of_client[id(call.client)]
