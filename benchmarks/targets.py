"""What we want to reach: figures of ours, most of them as ratios to a peer's in the same run.

Disks and machines differ, so what is durable is held against a bare fsynced commit, and against peers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

BARE, POOL = "bare commits", "process pool"
SQLITE, HUEY = "Backburner SQLite", "Huey SQLite, fsync"
POSTGRES, PGQUEUER = "Backburner PostgreSQL", "PgQueuer"
OVER_MCP, FASTMCP_TASKS = "Backburner over MCP", "fastmcp-tasks in memory"
ENGINE, STORE = "Backburner's engine", "Backburner's store"

#: Bare queues, what each keeps by the words for it, and the stores that our engines are measured on.
LIBRARIES, BROKERS, STORES = ("Dramatiq", "Celery"), ("Redis", "RabbitMQ"), ("SQLite", "PostgreSQL")
KEEPS = {"nothing": "bare", "results": "bare with results", "durable": "bare and durable"}


def bare(library: str, broker: str, keeps: str) -> str:
    return f"{KEEPS[keeps]}: {library} {broker}"


def own(engine: str, broker: str, store: str) -> str:
    return f"engine {engine}{' ' * bool(broker)}{broker}, {store}"


#: Our engines, each with the bare queue that it stands on.
ENGINES = {
    own(library.lower(), broker, store): bare(library, broker, "nothing")
    for library in LIBRARIES
    for broker in BROKERS
    for store in STORES
}

RATE, RATE_16 = "tasks/s", "tasks/s, 16"
DISPATCH, DISPATCH_P99, SUBMIT = "dispatch p50 ms", "dispatch p99 ms", "submit p50 ms"
CPU = "CPU ms a task"
PLAIN_CALL, CPU_PLAIN_CALL = "plain call p50 ms", "CPU ms a plain call"
SUBMITS_16, CPU_SUBMIT = "submits/s, 16", "CPU ms a submit"
FIFTY_S = "50 × 1 s, s"
RUNNER_MS, SUPERVISOR_MS = "killed runner to running again, ms", "killed supervisor to running again, ms"
IDLE = "supervisor's CPU when idle, %"
GROWTH = "largest growth to a million tasks"

AGENTS, HELD = "Backburner for agents", "Backburner's held calls"
CALLS_WITH_TASKS = "most calls on a host with tasks"
CALLS_60_S = "most calls for 2 min on a known host that waits 60 s"
CALLS_HELD = "most calls for 30 min where a wait can be held so long"
DUPLICATES, LOST, TOKENS = "duplicate runs", "lost results", "overhead tokens a task"

HELD_KB, JOINED_KB = "memory a held call, kB", "memory a joined call, kB"
PING_ALONE, PING_HELD, PING_JOINED = "ping p99 ms", "ping p99 ms, held", "ping p99 ms, held and joined"

START = "Backburner's start"
START_S, START_S_BARE = "until initialize is answered, s", "until a bare MCPServer answers, s"
START_CPU, START_CPU_BARE = "CPU until then, s", "CPU of a bare MCPServer, s"
START_OURS = "CPU over a bare MCPServer's, s"

Figures = Mapping[str, float]


@dataclass(frozen=True)
class Target:
    """A figure of ours, alone or over one of another's, and how far it is to go."""

    what: str
    ours: str
    figure: str
    reach: float
    at_least: bool
    peer: str = ""
    peer_figure: str = ""

    def found(self, figures: Mapping[str, Figures]) -> float | None:
        """What was reached: a ratio, or the figure where there is no peer. None where it was not measured."""
        own = figures.get(self.ours, {}).get(self.figure)
        if own is None or not self.peer:
            return own
        other = figures.get(self.peer, {}).get(self.peer_figure or self.figure)
        return None if other is None else own / other

    def verdict(self, found: float) -> str:
        if not self.reach:
            return f"missed by {found:g}" if found > 0 else "reached"
        missed = 1 - found / self.reach if self.at_least else found / self.reach - 1
        return "reached" if missed <= 0 else f"missed by {missed:.0%}"

    @property
    def beside(self) -> str:
        """Whose figure ours is held against."""
        if self.peer == self.ours:
            return f"its {self.peer_figure.removesuffix(' p50 ms')}"
        return self.peer


def _at_least(reach: float, what: str, ours: str, figure: str, peer: str = "") -> Target:
    return Target(what, ours, figure, reach, at_least=True, peer=peer)


def _at_most(
    reach: float, what: str, ours: str, figure: str, peer: str = "", peer_figure: str = ""
) -> Target:
    return Target(what, ours, figure, reach, at_least=False, peer=peer, peer_figure=peer_figure)


TARGETS = (
    _at_least(1.4, "tasks/s, one submitter", SQLITE, RATE, HUEY),
    _at_least(0.45, "tasks/s, one submitter", SQLITE, RATE, BARE),
    _at_least(2.5, "tasks/s, 16 submitters", SQLITE, RATE_16, HUEY),
    _at_least(0.4, "tasks/s, 16 submitters", SQLITE, RATE_16, POOL),
    _at_most(2.2, "dispatch p50, random gaps", SQLITE, DISPATCH, BARE),
    _at_most(1.0, "dispatch p50, random gaps", SQLITE, DISPATCH, HUEY),
    _at_most(1.0, "dispatch p50, random gaps", SQLITE, DISPATCH, PGQUEUER),
    _at_most(1.7, "submit p50, random gaps", SQLITE, SUBMIT, BARE),
    _at_most(1.1, "CPU a task, all processes", SQLITE, CPU, HUEY),
    _at_least(1.5, "tasks/s, one submitter", POSTGRES, RATE, PGQUEUER),
    _at_most(0.9, "dispatch p50, random gaps", POSTGRES, DISPATCH, PGQUEUER),
    _at_most(1.5, "CPU a task, all processes", POSTGRES, CPU, PGQUEUER),
    _at_least(2.5, "tasks/s, 16 clients", OVER_MCP, RATE_16, FASTMCP_TASKS),
    _at_most(0.5, "CPU a task, all processes", OVER_MCP, CPU, FASTMCP_TASKS),
    _at_most(1.2, "submit p50", OVER_MCP, SUBMIT, OVER_MCP, PLAIN_CALL),
    _at_most(2.0, "50 async tools of 1 s, defaults, s", OVER_MCP, FIFTY_S),
    _at_most(13, RUNNER_MS, ENGINE, RUNNER_MS),
    _at_most(400, SUPERVISOR_MS, ENGINE, SUPERVISOR_MS),
    _at_most(0.13, IDLE, ENGINE, IDLE),
    _at_most(1.6, GROWTH, STORE, GROWTH),
    _at_most(1, CALLS_WITH_TASKS, AGENTS, CALLS_WITH_TASKS),
    _at_most(2, CALLS_60_S, AGENTS, CALLS_60_S),
    _at_most(3, CALLS_HELD, AGENTS, CALLS_HELD),
    _at_most(0, DUPLICATES, AGENTS, DUPLICATES),
    _at_most(0, LOST, AGENTS, LOST),
    _at_most(300, TOKENS, AGENTS, TOKENS),
    _at_most(0.15, START_OURS, START, START_OURS),
    *(
        made(reach, what, engine, figure, queue)
        for engine, queue in ENGINES.items()
        for made, reach, what, figure in (
            (_at_least, 0.67, "tasks/s, one submitter", RATE),  # 1.5 times the time
            (_at_most, 1.5, "dispatch p50, random gaps", DISPATCH),
        )
    ),
)
