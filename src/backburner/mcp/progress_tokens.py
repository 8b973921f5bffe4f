"""Progress tokens: which tool calls are in flight, how far they are, and whom to tell."""

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

from .. import json_text
from ..clock import Clock, SystemClock
from ..errors import InvalidRequest, NoClient, ProgressTimeout, TokenNotFound
from ..task import Progress, Task

Token = str | int

#: By so little progress grows when there is something to tell and the number is the same.
_HAIR = 1e-9
_KEPT, _LONGEST_KEPT, _LARGEST_KEPT = "progressToken", 1000, 2**63


class Client(Protocol):
    """Somebody who can be told of progress. Compared by identity."""

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification; returns at once, whether or not anybody reads it."""
        ...


@dataclass(frozen=True, slots=True)
class ProgressUpdate:
    """How far a call is: `percentage`, or `absolute` as (current, total), and what it is at.

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
        """What a task says of itself, or that it has not said anything yet; `message` in place of its own."""
        if progress is None:
            return cls(absolute=(0, None), message=message)
        counted = None if progress.step is None else (progress.step, progress.step_total)
        if counted is None and progress.percent is None:
            counted = (0, None)
        return cls(progress.percent, counted, message or progress.message, progress.context)

    @property
    def part(self) -> float | None:
        """How much of the whole is done, from 0 to 1; None when the whole is not known."""
        if self.percentage is not None:
            return self.percentage / 100
        current, total = self.absolute or (0, None)
        return current / total if total is not None and total > 0 else None


class Scale:
    """What the progress of one token is told on, for the whole life of the token.

    A client that chose the token is told what the tool counts, as the tool does: 300 of 1000. Where
    the tool gives a percentage it is a part of 1; the first progress with a whole decides. A token of
    ours is told parts of 1 from the beginning (`Scale(1)`), as the two-stage return has it.
    """

    __slots__ = ("_last", "_told", "_total")

    def __init__(self, total: float | None = None) -> None:
        self._total = total
        self._told: float = -1
        self._last: ProgressUpdate | None = None

    def params(self, token: Token, update: ProgressUpdate, *, anyway: bool = False) -> dict[str, Any] | None:
        """The parameters of `notifications/progress`; None when they would say nothing new, unless `anyway`.

        The protocol knows `progress`, which must grow with each notification whatever the tool says,
        `total` and `message`; the rest is there too, and once more in `_meta`, because typed clients
        drop what they do not know.
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
    """A call's token: `key` among all calls of a server; `given` by the client, if it chose one."""

    key: str
    given: Token | None
    scale: Scale

    @classmethod
    def of(cls, key: str, given: Any) -> CallToken:
        """With what the client gave as its own token, if that is one."""
        return cls(key, given, Scale()) if isinstance(given, str | int) else cls(key, None, Scale(1))

    @property
    def shown(self) -> Token:
        return self.key if self.given is None else self.given

    def shown_for(self, task: Task) -> Token:
        """What the client knows the call by once it has become this task."""
        return token_of(task) if self.given is None else self.given


def kept(given: Any) -> dict[str, Any]:
    """The client's token as a part of its task's meta data; none where a store could not keep it."""
    if isinstance(given, str):
        keepable = len(given) <= _LONGEST_KEPT and json_text.storable(given) == given
    else:
        keepable = isinstance(given, int) and abs(given) < _LARGEST_KEPT
    return {_KEPT: given} if keepable else {}


def token_of(task: Task) -> Token:
    """The token of the call that a task was, the same for ever: the client's own, or one made of its id."""
    given = task.meta.get(_KEPT)
    if isinstance(given, str | int):
        return given
    number = int.from_bytes(hashlib.sha256(task.task_id.encode()).digest()[:6], "big")
    return f"{task.submitted_at}-{number}"


@dataclass(slots=True)
class ToolCall:
    """A call in flight. `shown` is the token that its client knows; times are of the steady clock."""

    tool_name: str
    client: Client | None
    shown: Token
    started_at: int
    active_at: int
    in_progress: bool = False
    update: ProgressUpdate | None = None
    scale: Scale | None = None


class ProgressTokens:
    """The calls in flight, by token. Every look-up takes the same time, however many there are.

    A call that is silent for `silence_s` is forgotten, unless somebody who answers it said that it is in
    progress. Silent ones go every `sweep_s`, by a timer of the event loop on which calls come, which
    runs while there are any; without a loop, when the next call comes. Each is noticed when it is asked for.
    """

    def __init__(self, *, silence_s: float = 30.0, sweep_s: float = 5.0, clock: Clock | None = None) -> None:
        self._silence_ms = int(silence_s * 1000)
        self._sweep_ms = int(sweep_s * 1000)
        self._clock = clock or SystemClock()
        self._numbers = itertools.count(random.randrange(10_000, 100_000))
        self._lock = threading.Lock()
        # In the order of their last activity, the most silent first.
        self._calls: OrderedDict[Token, ToolCall] = OrderedDict()
        self._of_client: dict[int, set[Token]] = {}
        self._swept_at = 0
        self._timer: tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle] | None = None

    def __len__(self) -> int:
        return len(self._calls)

    def generate_token(self) -> str:
        """A token that was never given out before: the time in milliseconds, and a number."""
        return f"{self._clock.now_ms()}-{next(self._numbers)}"

    def track_tool_call(
        self,
        token: Token,
        tool_name: str,
        client: Client | None = None,
        *,
        shown: Token | None = None,
        scale: Scale | None = None,
        in_progress: bool = False,
    ) -> None:
        """Begin to follow a call. A token that is followed already now stands for this call.

        `shown` is the client's own token for it, where it has one: two clients may choose the same.
        `scale` is what it was told on before, if it was. One that is `in_progress` may be silent: it is
        followed until `cleanup_completed`.
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
        """Note how far a call is and tell its client, unless that says nothing new.

        An update may be a dict of its fields. Raises TokenNotFound, ProgressTimeout and NoClient.
        """
        update = update if isinstance(update, ProgressUpdate) else ProgressUpdate(**update)
        with self._lock:
            call = self._alive(token)
            call.update = update
            self._renew(token)
            if call.client is None:
                raise NoClient(token=token)
            call.scale = call.scale or Scale()
            params = call.scale.params(call.shown, update)
        if params is not None:
            call.client.notify("notifications/progress", params)

    def touch(self, token: Token, update: ProgressUpdate | None = None) -> None:
        """Note that a call is alive, or how far it is, and tell nobody. Forgotten calls stay forgotten."""
        with self._lock:
            call = self._calls.get(token)
            if call is not None:
                call.update = update or call.update
                self._renew(token)

    def get_progress(self, token: Token) -> ToolCall:
        """What is known of a call. Raises TokenNotFound."""
        with self._lock:
            if token not in self._calls:
                raise TokenNotFound(token=token)
            return self._calls[token]

    def list_active_tokens(self) -> list[Token]:
        """The tokens of the calls in flight, the most silent first."""
        with self._lock:
            return list(self._calls)

    def check_timeout(self, token: Token) -> None:
        """Raises ProgressTimeout for a call that was silent too long, and forgets it; or TokenNotFound."""
        with self._lock:
            self._alive(token)

    def cleanup_completed(self, token: Token) -> None:
        """The call is over. Harmless when it is unknown, or over already."""
        with self._lock:
            self._forget(token)

    def client_gone(self, client: Client) -> list[Token]:
        """Forget all calls of a client that has gone; says which they were."""
        with self._lock:
            tokens = list(self._of_client.get(id(client), ()))
            for token in tokens:
                self._forget(token)
            return tokens

    def sweep(self) -> list[Token]:
        """Forget the calls that were silent for too long; says which they were."""
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
        """Set the timer, if there is anything to sweep and a loop to do it on. It ends with the loop."""
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
