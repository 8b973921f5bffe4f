"""How long a client waits for the answer to a call: what it is set to, what it taught, what is known of it.

What was seen of a client counts more than the table (docs/decisions/0028). A clock is regular, and a network
is not: so what two time-outs agree on is believed for a month, and what one says for a day, and only where
it makes calls shorter.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from ..app import Backburner
from ..client_time_outs import ClientTimeOut, Transport
from ..config import Settings
from ..errors import BackburnerError
from .known_clients import FOREVER, SDK_NAME, Clocks, known_clocks
from .request import RequestContext, client_of, request_meta
from .showing import Client

logger = logging.getLogger(__name__)

Source = Literal["settings", "learned", "table", "default"]

#: Of a client of whom nothing is known: the shortest limit of a host, but for those of the SDK's own name.
_UNKNOWN = Clocks(30.0)
#: So much of a client's limit may pass before the answer must be on its way. Of a limit that is documented,
#: all but the last moments: an answer that comes too late all the same costs one more call, which joins.
_MARGIN, _LAST_MOMENTS_S = 0.8, 1.5
#: A held call speaks up this often even when nothing happens.
_HEARTBEAT_S = 10.0
#: No client gives up sooner: its caller went away, or stopped it.
_SHORTEST_S = 1.0
_LONGEST_NAME = 100
_DAY_MS, _MONTH_MS = 86_400_000, 30 * 86_400_000
#: Two time-outs by one clock differ by no more than this part; a wait that disproves one is longer by it.
_ALIKE = 0.1
#: How old what is known of the store's time-outs may be. Who learned one looks at once.
_FRESH_S = 2.0


@dataclass(frozen=True, slots=True)
class Limits:
    """A client's clocks, and from where they are known."""

    clocks: Clocks
    source: Source

    def hold_s(self, *, with_progress: bool) -> float | None:
        """How long to keep a call before its client must have something in hand; None: to its end."""
        patience_s = self.clocks.patience_s(with_progress=with_progress)
        if patience_s is None or self.source == "settings":  # what is set is taken at its word
            return patience_s
        careful_s = patience_s * _MARGIN
        return max(careful_s, patience_s - _LAST_MOMENTS_S) if self.source == "table" else careful_s

    @property
    def heartbeat_s(self) -> float:
        """How often to speak up: below a third of the shortest clock."""
        shortest_s = self.hold_s(with_progress=False)
        return _HEARTBEAT_S if shortest_s is None else min(_HEARTBEAT_S, max(shortest_s, 0.3) / 3)


class Patience:
    """What a server knows of its clients' clocks. `refresh` it now and then: the rest costs no statement.

    Without an app there is no store, and nothing is learned.
    """

    def __init__(self, settings: Settings, app: Backburner | None = None) -> None:
        self._settings = settings
        self._app = app
        self._seen: Mapping[Client, list[ClientTimeOut]] = {}
        self._stale_at = 0.0
        self._learning: set[asyncio.Future[None]] = set()

    # -- asking

    def limits_of(self, ctx: RequestContext) -> Limits:
        """The clocks of the client of a request."""
        return self.limits(asking(ctx))

    def limits(self, client: Client) -> Limits:
        return limits(client, self._settings, self._seen.get(client, ()), _now_ms())

    def hold_s(self, ctx: RequestContext, *, silent: bool = False) -> float | None:
        """How long to hold a call; None: to its end.

        A clock that progress restarts does not count if the call came with a token, and is not `silent`:
        then who holds it must speak up each `heartbeat_s`.
        """
        return self.limits_of(ctx).hold_s(with_progress=_hears(ctx) and not silent)

    def gives_up(self, ctx: RequestContext) -> bool:
        return self.is_known_to_give_up(asking(ctx), hears=_hears(ctx))

    def is_known_to_give_up(self, client: Client, *, hears: bool = False) -> bool:
        """Whether a client is known to give up on a call when its patience is over (docs/decisions/0020).

        Of others that is only feared. The SDK's own name says nothing of the program that has it, and so
        neither does what another program taught.
        """
        chosen_s = _chosen_s(client, self._settings)
        if chosen_s is not None:
            return chosen_s != math.inf
        found = _found(client, self._seen.get(client, ()), _now_ms())
        known = found.source != "default" and client.name != SDK_NAME
        return known and found.hold_s(with_progress=hears) is not None

    async def refresh(self) -> None:
        """Read what clients taught, unless that was done a moment ago; it goes on without if it must."""
        if self._app is None or time.monotonic() < self._stale_at:
            return
        self._stale_at = time.monotonic() + _FRESH_S
        try:
            self._seen = by_client(await self._app.service.aio.look(self._app.store.time_outs))
        except BackburnerError as error:
            logger.debug("What clients taught cannot be read now: %s", error)

    # -- learning

    async def learn(self, client: Client, waited_s: float, silent_s: float) -> None:
        """A client gave a held call up by a timer, or its answer could not be delivered.

        `waited_s` since the call came; `silent_s` since progress was last sent for it, else as `waited_s`.
        """
        if self._app is None or waited_s < _SHORTEST_S or not _can_be_kept(client):
            return
        waited_ms, silent_ms = int(waited_s * 1000), int(min(silent_s, waited_s) * 1000)
        try:
            seen_at = self._app.store.now_ms()
            seen = ClientTimeOut(
                client.name, client.version, transport_of(client), seen_at, waited_ms, silent_ms
            )
            await self._app.service.aio.run(self._app.store.keep_time_out, seen)
        except BackburnerError as error:
            logger.warning("%s gave up after %.1f s, which cannot be kept: %s", client.name, waited_s, error)
            return
        self._stale_at = 0.0
        await self.refresh()

    def learn_soon(self, client: Client, waited_s: float, silent_s: float) -> None:
        """As `learn`, for who cannot wait for it."""
        learning = asyncio.ensure_future(self.learn(client, waited_s, silent_s))
        self._learning.add(learning)
        learning.add_done_callback(self._learning.discard)

    async def delivered(self, client: Client, waited_s: float) -> None:
        """An answer arrived after so long: what would have had the client give up before is not its clock."""
        waited_ms = int(waited_s * 1000 * (1 - _ALIKE))
        if self._app is None or all(one.waited_ms >= waited_ms for one in self._seen.get(client, ())):
            return
        key = (client.name, client.version, transport_of(client))
        try:
            await self._app.service.aio.run(self._app.store.disprove_time_outs, *key, waited_ms)
        except BackburnerError as error:
            logger.debug("What %s disproved cannot be forgotten now: %s", client.name, error)
            return
        self._stale_at = 0.0
        await self.refresh()


def asking(ctx: RequestContext) -> Client:
    """The client of a request."""
    return Client(*client_of(ctx), over_http=ctx.request is not None)


def _hears(ctx: RequestContext) -> bool:
    """Whether the client of a call hears of its progress."""
    return isinstance(request_meta(ctx).get("progressToken"), str | int)


def transport_of(client: Client) -> Transport:
    return "http" if client.over_http else "stdio"


def by_client(seen: Iterable[ClientTimeOut]) -> dict[Client, list[ClientTimeOut]]:
    found: dict[Client, list[ClientTimeOut]] = {}
    for one in seen:
        found.setdefault(Client(one.name, one.version, one.transport == "http"), []).append(one)
    return found


def limits(client: Client, settings: Settings, seen: Iterable[ClientTimeOut], now_ms: int) -> Limits:
    """First what `client_patience` says of the client, then `patience_s` where it is set, then what it
    taught, then what is known of clients by that name."""
    chosen_s = _chosen_s(client, settings)
    if chosen_s is None:
        chosen_s = settings.mcp.patience_s
    if chosen_s is not None:
        return Limits(Clocks(FOREVER if chosen_s == math.inf else chosen_s), "settings")
    return _found(client, seen, now_ms)


def _found(client: Client, seen: Iterable[ClientTimeOut], now_ms: int) -> Limits:
    """What is known of a client, whatever is set."""
    known = known_clocks(client)
    taught = _taught(known or _UNKNOWN, list(seen), now_ms)
    if taught is not None:
        return Limits(taught, "learned")
    return Limits(known, "table") if known is not None else Limits(_UNKNOWN, "default")


def _taught(known: Clocks, seen: list[ClientTimeOut], now_ms: int) -> Clocks | None:
    """The clocks, with what time-outs say; None if they say nothing that is believed.

    Where progress restarts the idle clock and none was sent, that clock ran out; else it was the wall clock.
    """
    idle = [one for one in seen if known.restarts and one.silent_ms == one.waited_ms]
    wall = [one for one in seen if one not in idle]
    idle_s = _believed_s(idle, known.patience_s(with_progress=False), now_ms)
    wall_s = _believed_s(wall, known.patience_s(with_progress=True), now_ms)
    if idle_s is None and wall_s is None:
        return None
    return Clocks(
        known.wall_s if wall_s is None else wall_s,
        known.idle_s if idle_s is None else idle_s,
        known.restarts,
    )


def _believed_s(seen: list[ClientTimeOut], assumed_s: float | None, now_ms: int) -> float | None:
    """The shortest limit that is believed; None if there is none.

    One time-out may be a network's doing: it is believed for a day, and never when it is after longer than
    was assumed.
    """
    believed = []
    for one in seen:
        agreed = any(_are_alike(one, other) for other in seen if other is not one)
        shorter = assumed_s is None or one.waited_ms < assumed_s * 1000
        age_ms = abs(now_ms - one.seen_at)
        if age_ms < _MONTH_MS if agreed else shorter and age_ms < _DAY_MS:
            believed.append(one.waited_ms / 1000)
    return min(believed, default=None)


def _are_alike(one: ClientTimeOut, other: ClientTimeOut) -> bool:
    return abs(one.waited_ms - other.waited_ms) <= _ALIKE * max(one.waited_ms, other.waited_ms)


def _chosen_s(asking: Client, settings: Settings) -> float | None:
    """What `client_patience` says of clients by that name; None: nothing."""
    for client, chosen in settings.mcp.client_patience.items():
        pattern, _, version = client.partition("@")
        if fnmatchcase(asking.name.casefold(), pattern.casefold()) and fnmatchcase(
            asking.version, version or "*"
        ):
            return math.inf if isinstance(chosen, str) else chosen
    return None


def _can_be_kept(client: Client) -> bool:
    """Names come from clients: what is no plain text, or very long, is not kept."""
    texts = (client.name, client.version)
    return bool(client.name) and all(len(text) <= _LONGEST_NAME and text.isprintable() for text in texts)


def _now_ms() -> int:
    return int(time.time() * 1000)
