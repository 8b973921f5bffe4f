"""Client timeouts: known clients, learned timeouts, and how long to hold a call."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

from ..app import Backburner
from ..core.monitoring import ClientTimeout, Transport
from ..core.times import iso
from ..errors import BackburnerError
from ..settings import Settings
from ..store.protocol import Store
from .callers import PerCaller, is_one_caller
from .requests import RequestContext, client_of, is_modern, request_meta
from .results import Client, setting_for

#: Default client name of the Python SDK, so of any program built with it.
SDK_NAME = "mcp"
FOREVER = None


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Timeouts of a client: `wall_s` after the call, `idle_s` without an answer; None for never.

    `restarts`: progress notifications restart the idle timeout.
    """

    wall_s: float | None = FOREVER
    idle_s: float | None = FOREVER
    restarts: bool = False

    def patience_s(self, *, with_progress: bool) -> float | None:
        """Return the longest time for an answer, with or without progress notifications."""
        timeouts = (self.wall_s,) if with_progress and self.restarts else (self.wall_s, self.idle_s)
        return min((clock for clock in timeouts if clock is not None), default=FOREVER)


@dataclass(frozen=True, slots=True)
class _Row:
    """Timeouts of clients by name pattern, from a version on, for one transport or both.

    `turn_per_task`: each task of the tasks extension costs the host a turn of its model.
    """

    name: str
    timeouts: Timeouts
    since: tuple[int, ...] = ()
    over_http: bool | None = None
    turn_per_task: bool = False

    def fits(self, client: Client) -> bool:
        return (
            self.over_http in (None, client.over_http)
            and fnmatchcase(client.name.casefold(), self.name)
            and _numbers(client.version) >= self.since
        )


#: The last matching row counts.
_TABLE = (
    # The OpenAI Agents SDK and Google's ADK send the SDK's name, too (5 s: adk-python#1463); LlamaIndex and
    # Langflow wait for 30 s (llama_index#20270, langflow#11347).
    _Row(SDK_NAME, Timeouts(5)),
    _Row("openai-mcp*", Timeouts(60)),  # ChatGPT's apps: OpenAI's forum
    _Row("chatgpt", Timeouts(60)),  # the same; name: apify
    # claude.ai: claude-ai-mcp#115. The desktop app sends this name too (ezyang/codemcp#263), and waits
    # for 60 s (claude-code#22542) or 240 s (#44032, #65643).
    _Row("claude-ai", Timeouts(60)),
    # Name: claude-code#43299. 60 s is reported of earlier versions (#18684) and of the desktop app (#63379).
    _Row("claude-code*", Timeouts(60), turn_per_task=True),
    # Idle clocks: #70441, laurigates/claude-plugins#2059; progress restarts them: vfarcic/dot-ai#708.
    _Row("claude-code", Timeouts(100_000, 1800, restarts=True), since=(2, 1, 187), over_http=False),
    _Row("claude-code", Timeouts(100_000, 300, restarts=True), since=(2, 1, 187), over_http=True),
    # 60 s (orbiqd-briefkit#13, 0.92), then 120 s, and 300 s since June 2026 (codex#28234), seen in 0.169 as
    # `codex-mcp-client`: `tool_timeout_sec`, which progress does not restart. Both names: apify.
    _Row("codex*", Timeouts(60)),
    _Row("codex*", Timeouts(300), since=(0, 144)),
    _Row("cursor*", Timeouts(300)),  # cursor#3510; name (cursor-vscode): apify
    _Row("cline*", Timeouts(60)),  # DEFAULT_MCP_TIMEOUT_SECONDS and name: its McpHub.ts; cline#12576
    # The command line, seen in 3.0 as `@cline/core`. It sends the version 0.0.0.
    _Row("@cline/*", Timeouts(60)),
    _Row(
        "roo*", Timeouts(60)
    ),  # as configured, progress does not help: Roo-Code#10478; name (Roo-Code): apify
    _Row("zed", Timeouts(60)),  # DEFAULT_REQUEST_TIMEOUT: its context_server/src/client.rs, zed#45378
    _Row("goose*", Timeouts(300)),  # goose#8295; seen in 1.52 as `goose-cli`
    # MCP_DEFAULT_TIMEOUT_MSEC and name: its mcp-client.ts; seen in 0.61
    _Row("gemini-cli*", Timeouts(600)),
    # Progress restarts the 60 s (opencode#32477). 1.18 had no other limit within 925 s; 5 min in all are
    # reported of earlier versions (#39584).
    _Row("opencode", Timeouts(idle_s=60, restarts=True)),
    _Row("antigravity*", Timeouts(180)),  # antigravity-cli#780; name (antigravity-client): apify
    _Row("github-copilot-developer", Timeouts(60)),  # copilot-cli#1535; name: apify
    _Row("copilot-cli", Timeouts(idle_s=180, restarts=True)),  # seen in 1.0, with no other limit within 925 s
    _Row("langchain-mcp-adapter", Timeouts(60)),  # langchainjs#9136; name: its client.ts
    _Row("jan-*", Timeouts(30)),  # jan#6733; name (Jan-Streamable-Client): apify
    # MCP_SERVER_REQUEST_TIMEOUT, which progress restarts, and MCP_REQUEST_MAX_TOTAL_TIMEOUT of its README
    _Row("*inspector*", Timeouts(60, 10, restarts=True)),
    _Row("*inspector*", Timeouts(60, 300, restarts=True), since=(0, 17)),
    # No limit over stdio (vscode#311595), 5 min reported over HTTP (#261734, #274094); both names: apify
    _Row("visual?studio?code*", Timeouts()),
    _Row("visual?studio?code*", Timeouts(300), over_http=True),
    _Row("backburner*", Timeouts()),
)


def known_timeouts(client: Client) -> Timeouts | None:
    """Return the table's timeouts for a client; None if it is unknown."""
    return next((row.timeouts for row in reversed(_TABLE) if row.fits(client)), None)


def identifies_program(client: Client) -> bool:
    """Return whether the client's name is that of one program, which the table knows."""
    return client.name.casefold() != SDK_NAME and known_timeouts(client) is not None


def spends_turn_on_task(client: Client) -> bool:
    """Return whether each task costs the host a turn of its model."""
    return any(row.turn_per_task for row in _TABLE if row.fits(client))


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"v?(\d{1,9}(?:\.\d{1,9})*)", version)
    return tuple(int(part) for part in found[1].split(".")) if found else ()


#: SDKs, and the `reason` that they send with `notifications/cancelled` after a timeout.
_WORDS: tuple[tuple[str, str], ...] = (
    ("TypeScript SDK 1 and 2, Kotlin SDK", r"(.*: )?(Request timed out|Maximum total timeout exceeded)"),
    ("AbortSignal.timeout in any JavaScript host", r"TimeoutError: .*"),
    ("Python SDK 2, FastMCP 4", r"timed out after \S+s"),
    ("Rust SDK (rmcp)", r"request timeout"),
    ("Goose, before it left that to the Rust SDK", r"timed out"),
    ("Go SDK", r"(.*: )?context deadline exceeded"),
    ("LangChain4j", r"timeout"),
)
_TIMER = re.compile("|".join(f"(?:{words})" for _, words in _WORDS), re.IGNORECASE | re.DOTALL)

#: Clients that time out without a notification, by name.
_SILENT = (
    SDK_NAME,  # Python SDK 1; version 2 has the same name, and sends it
    "codex*",  # 0.169 sends it
    "goose*",
    "cline*",
    "@cline/*",
)
#: Reason that Codex sends after a timeout and after Esc.
_CODEX, _CODEX_REASON = "codex*", "MCP request cancelled by caller"
#: Codex timeouts are whole seconds; observed ones were at most 3 ms off.
_CODEX_TOLERANCE_S = 0.03
#: A repeated call sooner than this is a parallel call: no timeout is shorter.
_FAN_OUT_S = 3.0
#: A stream closed sooner was not closed by a timeout.
_SHORTEST_TIMER_S = 4.0
#: Time in which `notifications/cancelled` may follow an aborted request.
LATE_S = 5.0


def is_timeout(client_name: str, reason: Any, waited_s: float, wall_s: float | None = FOREVER) -> bool:
    """Return whether a client timeout is the cause of a `notifications/cancelled`.

    `waited_s` is the time from the arrival of the request to that of the notification, `wall_s` the client's
    known timeout.
    """
    if not isinstance(reason, str):
        return False
    if reason == _CODEX_REASON and fnmatchcase(client_name.casefold(), _CODEX):
        if wall_s is not None and abs(waited_s - wall_s) <= _LAST_MOMENTS_S:
            return True  # an answer was due before: this server is late
        seconds = round(waited_s)
        return seconds >= 1 and abs(waited_s - seconds) <= _CODEX_TOLERANCE_S
    return _TIMER.fullmatch(reason.strip()) is not None


def may_be_timeout(ctx: RequestContext, waited_s: float) -> bool:
    """Return whether a timeout may have closed the stream (2026-07-28 sends no notification)."""
    return is_modern(ctx) and ctx.request is not None and waited_s >= _SHORTEST_TIMER_S


def may_be_retry(ctx: RequestContext, held_s: float) -> bool:
    """Return whether the call may repeat one held on the same connection that timed out silently.

    2026-07-28 over HTTP has no such connections. Of the Python SDK, only version 2 speaks that revision.
    """
    name = client_of(ctx)[0].casefold()
    if is_modern(ctx) and (ctx.request is not None or name == SDK_NAME):
        return False
    silent = any(fnmatchcase(name, pattern) for pattern in _SILENT)
    unknown = not is_modern(ctx) and known_timeouts(requesting_client(ctx)) is None
    return (silent or unknown) and held_s >= _FAN_OUT_S


logger = logging.getLogger(__name__)

Source = Literal["settings", "learned", "table", "default"]

#: For waits of unknown clients: the shortest timeout of any host without the SDK's default name.
_UNKNOWN = Timeouts(30.0)
#: Share of a timeout after which the answer is sent. Documented timeouts are used up to the last moments:
#: a late answer costs one more call, which joins.
_MARGIN, _LAST_MOMENTS_S = 0.8, 1.5
#: Interval of progress notifications for a held call.
_HEARTBEAT_S = 10.0
#: Shorter waits were ended by the user, not by a timeout.
_SHORTEST_S = 1.0
_LONGEST_NAME = 100
_DAY_MS, _MONTH_MS = 86_400_000, 30 * 86_400_000
#: Relative tolerance between observed timeouts.
_ALIKE = 0.1
#: Share of the time until a repeated call that is taken for the timeout; a model's turn is the rest.
_BEFORE_RETRY = 0.6
#: Time for which a timeout of a program whose name identifies none counts.
_DAY_S = 86_400.0
#: Tasks whose callers timed out, or may have: so many are remembered.
_MOST_TASKS = 1000
#: Cache time of the stored timeouts.
_FRESH_S = 2.0


@dataclass(frozen=True, slots=True)
class Limits:
    """A client's timeouts, and their source."""

    timeouts: Timeouts
    source: Source

    def hold_s(self, *, with_progress: bool) -> float | None:
        """Return how long to hold a call; None for until its end."""
        patience_s = self.timeouts.patience_s(with_progress=with_progress)
        if patience_s is None or self.source == "settings":  # settings need no margin
            return patience_s
        careful_s = patience_s * _MARGIN
        return max(careful_s, patience_s - _LAST_MOMENTS_S) if self.source == "table" else careful_s

    @property
    def heartbeat_s(self) -> float:
        """Progress interval: less than a third of the shortest timeout."""
        shortest_s = self.hold_s(with_progress=False)
        return _HEARTBEAT_S if shortest_s is None else min(_HEARTBEAT_S, max(shortest_s, 0.3) / 3)


class TimeoutPolicy:
    """A server's knowledge of client timeouts, refreshed from the store.

    Timeouts of programs that the table knows are stored by name, for all servers. A generic or unknown name
    says nothing about the program, so its timeouts are in memory, by caller. So are timeouts that only a
    repeated call suggests.
    Without an app there is no store, and nothing is stored.
    """

    def __init__(self, settings: Settings, app: Backburner | None = None) -> None:
        self._settings = settings
        self._app = app
        self._seen: Mapping[Client, list[ClientTimeout]] = {}
        self._stale_at = 0.0
        self._learning: set[asyncio.Future[None]] = set()
        #: Timeouts of programs without a name of their own, and when they were observed.
        self._here: PerCaller[tuple[float, float]] = PerCaller()
        #: Tasks whose anonymous callers timed out.
        self._given_up: OrderedDict[str, None] = OrderedDict()
        #: Times after which callers went on without an answer, by task: perhaps timeouts.
        self._suspected: PerCaller[dict[str, float]] = PerCaller()

    # -- limits

    def limits_of(self, ctx: RequestContext) -> Limits:
        """Return the limits of the client of a request."""
        client = requesting_client(ctx)
        found = self.limits(client)
        timeout_s = self._timeout_here(ctx)
        if found.source == "settings" or timeout_s is None:
            return found
        if identifies_program(client) and timeout_s > (found.timeouts.wall_s or math.inf):
            return found
        return Limits(Timeouts(timeout_s), "learned")

    def limits(self, client: Client) -> Limits:
        return limits(client, self._settings, self._seen.get(client, ()), _now_ms())

    def hold_s(self, ctx: RequestContext, *, silent: bool = False) -> float | None:
        """Return how long to hold a call; None for until its end.

        A timeout that progress restarts is ignored if the call has a progress token and is not `silent`: the
        holder then sends progress every `heartbeat_s`.
        """
        return self.limits_of(ctx).hold_s(with_progress=_hears(ctx) and not silent)

    def gives_up(self, ctx: RequestContext, task_id: str = "") -> bool:
        """Return whether the caller is known to time out, at least on calls for this task.

        A generic or unknown name is not evidence: the caller itself must have timed out before.
        """
        client = requesting_client(ctx)
        if identifies_program(client) or _chosen_s(client, self._settings) is not None:
            return self.is_known_to_give_up(client, hears=_hears(ctx))
        if self._timeout_here(ctx) is None:
            return False
        return is_one_caller(ctx) or task_id in self._given_up

    def is_known_to_give_up(self, client: Client, *, hears: bool = False) -> bool:
        """Return whether clients of that name are known to time out (docs/decisions/0020).

        The SDK's default name identifies no program, so neither the table nor learned timeouts count for it.
        """
        chosen_s = _chosen_s(client, self._settings)
        if chosen_s is not None:
            return chosen_s != math.inf
        found = _found(client, self._seen.get(client, ()), _now_ms())
        known = found.source != "default" and client.name != SDK_NAME
        return known and found.hold_s(with_progress=hears) is not None

    def is_timeout(self, client: Client, reason: Any, waited_s: float) -> bool:
        """Return whether the client's timeout is the cause of its `notifications/cancelled`."""
        return is_timeout(client.name, reason, waited_s, self.limits(client).timeouts.wall_s)

    async def refresh(self) -> None:
        """Read the stored timeouts unless they are fresh; errors are ignored."""
        if self._app is None or time.monotonic() < self._stale_at:
            return
        self._stale_at = time.monotonic() + _FRESH_S
        try:
            self._seen = by_client(await self._app.service.aio.look(self._app.store.time_outs))
        except BackburnerError as error:
            logger.debug("Client timeouts could not be read: %s", error)

    # -- learning

    async def note_timeout(
        self, ctx: RequestContext, waited_s: float, silent_s: float, task_id: str = ""
    ) -> None:
        """Learn that the caller timed out on a held call, or that its answer was undeliverable.

        `waited_s` is the time since the call, `silent_s` that since the last progress notification.
        """
        client = requesting_client(ctx)
        if identifies_program(client):
            await self.learn(client, waited_s, silent_s)
        elif waited_s >= _SHORTEST_S:
            self._remember(ctx, waited_s, task_id)

    def note_timeout_soon(
        self, ctx: RequestContext, waited_s: float, silent_s: float, task_id: str = ""
    ) -> None:
        """Learn in the background."""
        learning = asyncio.ensure_future(self.note_timeout(ctx, waited_s, silent_s, task_id))
        self._learning.add(learning)
        learning.add_done_callback(self._learning.discard)

    def note_retry(self, ctx: RequestContext, held_s: float) -> None:
        """Learn that the caller repeats a call that has been held so long: its timeout is shorter."""
        client = requesting_client(ctx)
        known_s = (known_timeouts(client) or _UNKNOWN).wall_s or math.inf
        if not identifies_program(client) or held_s < known_s:
            self._remember(ctx, min(_BEFORE_RETRY * held_s, known_s))

    def suspect_timeout(self, ctx: RequestContext, task_id: str, waited_s: float) -> None:
        """Note that the caller went on while its call was held, as after a timeout."""
        suspected = self._suspected.get(ctx)
        if suspected is None or len(suspected) >= _MOST_TASKS:
            suspected = {}
            self._suspected.put(ctx, suspected)
        suspected.setdefault(task_id, waited_s)

    def confirm_timeout(self, ctx: RequestContext, task_id: str) -> None:
        """Learn a suspected timeout, now that the caller has repeated its call."""
        timeout_s = (self._suspected.get(ctx) or {}).pop(task_id, None)
        if timeout_s is not None and not identifies_program(requesting_client(ctx)):
            self._remember(ctx, timeout_s, task_id)

    async def note_delivered(self, ctx: RequestContext, waited_s: float) -> None:
        """Forget learned timeouts of the caller that a delivered answer disproves."""
        client = requesting_client(ctx)
        if identifies_program(client):
            await self.delivered(client, waited_s)
        timeout_s = self._timeout_here(ctx)
        if timeout_s is not None and timeout_s < waited_s * (1 - _ALIKE) and not may_be_retry(ctx, waited_s):
            self._here.discard(ctx)

    def _remember(self, ctx: RequestContext, timeout_s: float, task_id: str = "") -> None:
        known_s = self._timeout_here(ctx)
        shortest_s = timeout_s if known_s is None else min(timeout_s, known_s)
        self._here.put(ctx, (shortest_s, time.monotonic()))
        if task_id:
            self._given_up[task_id] = None
            while len(self._given_up) > _MOST_TASKS:
                self._given_up.popitem(last=False)

    def _timeout_here(self, ctx: RequestContext) -> float | None:
        """Return the shortest timeout of this caller that was observed in the last day."""
        timeout_s, seen_at = self._here.get(ctx) or (None, 0.0)
        return timeout_s if time.monotonic() - seen_at < _DAY_S else None

    async def learn(self, client: Client, waited_s: float, silent_s: float) -> None:
        """Store that clients of that name time out after so long."""
        if self._app is None or waited_s < _SHORTEST_S or not _can_be_kept(client):
            return
        waited_ms, silent_ms = int(waited_s * 1000), int(min(silent_s, waited_s) * 1000)
        try:
            seen_at = self._app.store.now_ms()
            seen = ClientTimeout(
                client.name, client.version, transport_of(client), seen_at, waited_ms, silent_ms
            )
            await self._app.service.aio.run(self._app.store.keep_time_out, seen)
        except BackburnerError as error:
            logger.warning("Timeout of %s after %.1f s could not be stored: %s", client.name, waited_s, error)
            return
        self._stale_at = 0.0
        await self.refresh()

    async def delivered(self, client: Client, waited_s: float) -> None:
        """Remove learned timeouts that a delivered answer disproves."""
        waited_ms = int(waited_s * 1000 * (1 - _ALIKE))
        if self._app is None or all(one.waited_ms >= waited_ms for one in self._seen.get(client, ())):
            return
        key = (client.name, client.version, transport_of(client))
        try:
            await self._app.service.aio.run(self._app.store.disprove_time_outs, *key, waited_ms)
        except BackburnerError as error:
            logger.debug("Disproved timeouts of %s could not be removed: %s", client.name, error)
            return
        self._stale_at = 0.0
        await self.refresh()


def requesting_client(ctx: RequestContext) -> Client:
    """Return the client of a request."""
    return Client(*client_of(ctx), over_http=ctx.request is not None)


def _hears(ctx: RequestContext) -> bool:
    """Return whether the client gets progress notifications for the call."""
    return isinstance(request_meta(ctx).get("progressToken"), str | int)


def transport_of(client: Client) -> Transport:
    return "http" if client.over_http else "stdio"


def by_client(seen: Iterable[ClientTimeout]) -> dict[Client, list[ClientTimeout]]:
    found: dict[Client, list[ClientTimeout]] = {}
    for one in seen:
        found.setdefault(Client(one.name, one.version, one.transport == "http"), []).append(one)
    return found


def limits(client: Client, settings: Settings, seen: Iterable[ClientTimeout], now_ms: int) -> Limits:
    """Return limits from `client_patience`, then `patience_s`, then learned timeouts, then the table."""
    chosen_s = _chosen_s(client, settings)
    if chosen_s is None:
        chosen_s = settings.mcp.patience_s
    if chosen_s is not None:
        return Limits(Timeouts(FOREVER if chosen_s == math.inf else chosen_s), "settings")
    return _found(client, seen, now_ms)


def _found(client: Client, seen: Iterable[ClientTimeout], now_ms: int) -> Limits:
    """Return limits without regard to the settings."""
    known = known_timeouts(client)
    taught = _taught(known or _UNKNOWN, list(seen), now_ms)
    if taught is not None:
        return Limits(taught, "learned")
    return Limits(known, "table") if known is not None else Limits(_UNKNOWN, "default")


def _taught(known: Timeouts, seen: list[ClientTimeout], now_ms: int) -> Timeouts | None:
    """Return the timeouts corrected by observed ones; None if these are not credible.

    If progress restarts the idle timeout and none was sent, the idle timeout was hit; otherwise the wall
    timeout.
    """
    idle = [one for one in seen if known.restarts and one.silent_ms == one.waited_ms]
    wall = [one for one in seen if one not in idle]
    idle_s = _believed_s(idle, known.patience_s(with_progress=False), now_ms)
    wall_s = _believed_s(wall, known.patience_s(with_progress=True), now_ms)
    if idle_s is None and wall_s is None:
        return None
    return Timeouts(
        known.wall_s if wall_s is None else wall_s,
        known.idle_s if idle_s is None else idle_s,
        known.restarts,
    )


def _believed_s(seen: list[ClientTimeout], assumed_s: float | None, now_ms: int) -> float | None:
    """Return the shortest credible timeout; None without one.

    A single observation may be a network failure: it counts for a day, and only if shorter than assumed.
    """
    believed = []
    for one in seen:
        agreed = any(_are_alike(one, other) for other in seen if other is not one)
        shorter = assumed_s is None or one.waited_ms < assumed_s * 1000
        age_ms = abs(now_ms - one.seen_at)
        if age_ms < _MONTH_MS if agreed else shorter and age_ms < _DAY_MS:
            believed.append(one.waited_ms / 1000)
    return min(believed, default=None)


def _are_alike(one: ClientTimeout, other: ClientTimeout) -> bool:
    return abs(one.waited_ms - other.waited_ms) <= _ALIKE * max(one.waited_ms, other.waited_ms)


def _chosen_s(client: Client, settings: Settings) -> float | None:
    """Return the `client_patience` setting for a client; None without one."""
    chosen = setting_for(settings.mcp.client_patience, client, None)
    return math.inf if isinstance(chosen, str) else chosen


def _can_be_kept(client: Client) -> bool:
    """Return whether a client's name, which is untrusted, is short printable text."""
    texts = (client.name, client.version)
    return bool(client.name) and all(len(text) <= _LONGEST_NAME and text.isprintable() for text in texts)


def _now_ms() -> int:
    return int(time.time() * 1000)


def client_records(store: Store, settings: Settings) -> list[dict[str, Any]]:
    """Return clients that timed out on a held call: their time limits, and where these are known from."""
    now_ms = store.now_ms()
    return [
        _record(client, limits(client, settings, seen, now_ms), seen)
        for client, seen in by_client(store.time_outs()).items()
    ]


def _record(client: Client, found: Limits, seen: list[ClientTimeout]) -> dict[str, Any]:
    return {
        "name": client.name,
        "version": client.version,
        "transport": transport_of(client),
        "wall_s": found.timeouts.wall_s,
        "idle_s": found.timeouts.idle_s,
        "restarts": found.timeouts.restarts,
        "held_s": found.hold_s(with_progress=False),
        "source": found.source,
        "time_outs": len(seen),
        "gave_up_after_s": min(one.waited_ms for one in seen) / 1000,
        "last_seen_at": iso(seen[-1].seen_at),
    }
