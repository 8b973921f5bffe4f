"""What goes over the wire about the server: its queues, workers, clients, tools and statistics."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from ...lifecycle import State
from .models import Given, Shown, Text, Time


class Queue(Shown):
    queue: str
    queued: int
    running: int
    workers: int
    max_length: int | None
    paused_at: datetime | None


class Queues(Shown):
    queues: list[Queue]


class Worker(Shown):
    """`current_task_id` is null if it is another's; what is of a machine, for who sees one owner's tasks."""

    worker_id: str
    queue: str
    state: str
    alive: bool
    current_task_id: str | None
    host: str | None
    pid: int | None
    last_heartbeat: datetime | None


class Workers(Shown):
    workers: list[Worker]


class Supervisor(Shown):
    """`trouble` says what keeps tasks from being done. What is of a machine is null, as of a worker."""

    state: Literal["absent", "starting", "working", "stopped", "silent"]
    trouble: str | None
    pid: int | None
    version: str | None
    since_at: datetime | None


class Client(Shown):
    name: str
    version: str
    transport: str
    wall_s: float | None
    idle_s: float | None
    source: str
    time_outs: int


class Clients(Shown):
    clients: list[Client]


class ForgetClients(Given):
    name: Text | None = Field(default=None, description="Of this client alone")


class Forgotten(Shown):
    forgotten: int


class Delivery(Shown):
    webhook_id: str
    task_id: str
    endpoint: str
    attempts: int
    created_at: datetime
    next_at: datetime | None
    given_up: bool
    last_error: str


class Deliveries(Shown):
    deliveries: list[Delivery]


class Retried(Shown):
    """`retried` is false where there is no such message to send."""

    webhook_id: str
    retried: bool


class Tool(Shown):
    tool_name: str
    description: str
    queue: str
    max_runtime_s: float | None
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None


class Tools(Shown):
    tools: list[Tool]


class OfOwner(Given):
    owner: Text | None = Field(default=None, description="Only for a role that sees all owners")


class Runtimes(Shown):
    """How long a tool's latest successes took."""

    tool_name: str
    runs: int
    median_s: float
    p95_s: float


class AllRuntimes(Shown):
    tools: list[Runtimes]


class States(Shown):
    states: dict[State, int]


class AskStatistics(Given):
    since: Time | None = None
    until: Time | None = None
    every_s: float = Field(default=60, ge=1, le=86_400 * 366)
    tool: Text | None = None
    queue: Text | None = None
    owner: Text | None = Field(default=None, description="Only for a role that sees all owners")


class Spread(Shown):
    """`counts` has how many were below each of `bounds_s`, and last how many were longer than all."""

    counts: list[int]
    half_within_s: float | None
    most_within_s: float | None = Field(description="95 of 100")


class Counted(Shown):
    ended: dict[State, int]
    wait: Spread
    run: Spread


class Stretch(Counted):
    since: datetime


class Statistics(Shown):
    since: datetime
    until: datetime
    every_s: float
    bounds_s: list[float]
    total: Counted
    stretches: list[Stretch]


class Overview(Shown):
    states: dict[State, int]
    queues: list[Queue]
    workers: list[Worker]
    statistics: Statistics


class Me(Shown):
    owner: str
    role: Literal["read", "operate", "read-all", "operate-all"]
    steers_queues: bool
