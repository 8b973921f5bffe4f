"""Progress tokens: which tool calls are in flight, how far they are, and whom to tell."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ..clock import Clock, SystemClock
from ..errors import InvalidRequest, NoClient, ProgressTimeout, TokenNotFound

Token = str | int


@dataclass(frozen=True, slots=True)
class CallToken:
    """A call's token: `key` among all calls of a server; `shown` to the client, which may have chosen it."""

    key: str
    shown: Token


class Client(Protocol):
    """Somebody who can be told of progress. Compared by identity."""

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification; returns at once, whether or not anybody reads it."""
        ...


@dataclass(frozen=True, slots=True)
class ProgressUpdate:
    """How far a call is: `percentage`, or `absolute` as (current, total), and what it is at."""

    percentage: float | None = None
    absolute: tuple[float, float] | None = None
    message: str | None = None
    context: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.percentage is None and self.absolute is None:
            raise InvalidRequest(reason="progress needs a percentage, or a current and a total number")

    def to_params(self, token: Token) -> dict[str, Any]:
        """The parameters of `notifications/progress`.

        The protocol knows `progress`, `total` and `message`; the rest is there too, and once more
        in `_meta`, because typed clients drop what they do not know.
        """
        progress, total = self.absolute or (self.percentage, 100)
        assert progress is not None, "one of the two is there"
        percentage = self.percentage
        if percentage is None and total:
            percentage = 100 * progress / total
        extra: dict[str, Any] = {} if percentage is None else {"percentage": percentage}
        if self.context:
            extra["context"] = dict(self.context)
        shown = {"progressToken": token, "progress": progress, "total": total, **extra, "_meta": extra}
        return shown if self.message is None else {**shown, "message": self.message}


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
        in_progress: bool = False,
    ) -> None:
        """Begin to follow a call. A token that is followed already now stands for this call.

        `shown` is the client's own token for it, where it has one: two clients may choose the same. One
        that is `in_progress` may be silent: it is followed until `cleanup_completed`.
        """
        now = self._clock.steady_ms()
        with self._lock:
            self._sweep(now)
            self._forget(token)
            own = token if shown is None else shown
            self._calls[token] = ToolCall(tool_name, client, own, now, now, in_progress)
            if client is not None:
                self._of_client.setdefault(id(client), set()).add(token)
            self._sweep_later()

    def send_progress(self, token: Token, update: ProgressUpdate | Mapping[str, Any]) -> None:
        """Note how far a call is and tell its client. Raises TokenNotFound, ProgressTimeout and NoClient.

        An update may be a dict of its fields.
        """
        update = update if isinstance(update, ProgressUpdate) else ProgressUpdate(**update)
        with self._lock:
            call = self._alive(token)
            call.update = update
            self._renew(token)
        if call.client is None:
            raise NoClient(token=token)
        call.client.notify("notifications/progress", update.to_params(call.shown))

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
