"""The Store protocol, composed of one protocol per subject, and its SQL implementation."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..core.limits import Limits
from ..core.reports import Change
from ..core.task import InputRequest, Task, TaskHead, Worker
from .clients import ClientStore, Note, OpenCall, SqlClients
from .external_jobs import ExternalJob, ExternalJobStore, SqlExternalJobs
from .keeper import HeldLease, KeeperStore, SqlKeeper
from .leases import BatchResult, ClaimRequest, Lease, LeaseStore, LeaseView, SqlLeases
from .monitoring import MonitoringStore, SqlMonitoring
from .outputs import OutputStore, SqlOutputs
from .sql.transaction import Transaction, read, write, write_relaxed
from .tasks import QueueDepth, Runtime, SqlTasks, TaskQuery, TaskStore
from .watch import ANYTHING, STEER, Watch
from .webhooks import Delivery, Outbox, SqlWebhooks

__all__ = [
    "ANYTHING",
    "STEER",
    "BatchResult",
    "ClaimRequest",
    "Delivery",
    "ExternalJob",
    "HeldLease",
    "Lease",
    "LeaseView",
    "Note",
    "OpenCall",
    "QueueDepth",
    "Runtime",
    "SqlStore",
    "Store",
    "StoreSize",
    "TaskQuery",
    "Watch",
    "WorkerStore",
]


@dataclass(frozen=True, slots=True)
class StoreSize:
    """Disk use of a store, with the parts that are a write-ahead log and unused pages."""

    bytes: int
    log_bytes: int = 0
    free_bytes: int = 0


class Store(
    TaskStore,
    LeaseStore,
    OutputStore,
    KeeperStore,
    ExternalJobStore,
    ClientStore,
    Outbox,
    MonitoringStore,
    Protocol,
):
    """The database of tasks, for one host or `shared` by several. Safe for many threads and processes."""

    url: str
    shared: bool

    def now_ms(self) -> int:
        """Return the store's time, which is the same for all its users."""
        ...

    def watch(self, *, steering: bool = False) -> Watch:
        """Listen for changes. With `steering`, topics for the holders of leases suffice."""
        ...

    def secret(self) -> bytes:
        """Return the random key of the store, which signs cursors and artifact links."""
        ...

    def spend(self, name: str, for_s: float) -> bool:
        """Use up a single-use name and remember it for that time. Return False if it was used before."""
        ...

    def is_spent(self, name: str) -> bool: ...

    def check_writable(self) -> None:
        """Make a write that changes nothing. Raises StoreBusy after seconds if the store is locked."""
        ...

    def wait_for_writers(self, seconds: float) -> None:
        """Set how long a write waits for another process of this host before it raises StoreBusy."""
        ...

    def size(self) -> StoreSize: ...

    def give_back(self, keep_bytes: int = ...) -> int:
        """Return some free space to the disk, in a step short enough for other writers.

        Return the number of bytes: 0 if only `keep_bytes` are free, or if the database does it by itself.
        """
        ...

    def version(self) -> int:
        """Return the number of the last migration."""
        ...

    def close(self) -> None: ...


class SqlStore(
    SqlTasks, SqlLeases, SqlOutputs, SqlKeeper, SqlExternalJobs, SqlClients, SqlWebhooks, SqlMonitoring
):
    """A Store over SQL, without the parts that depend on the database."""

    url: str
    shared: bool

    @abstractmethod
    def watch(self, *, steering: bool = False) -> Watch: ...

    @abstractmethod
    def follow_clock(self) -> None: ...

    @abstractmethod
    def size(self) -> StoreSize: ...

    @abstractmethod
    def give_back(self, keep_bytes: int = 0) -> int: ...

    @abstractmethod
    def version(self) -> int: ...

    @abstractmethod
    def close(self) -> None: ...

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def wait_for_writers(self, seconds: float) -> None:
        """Ignored unless the database is locked as a whole."""

    @read
    def secret(self, tx: Transaction) -> bytes:
        row = tx.one("secret")
        assert row is not None, "the first migration inserts it"
        return bytes(row["secret"])

    @write
    def spend(self, tx: Transaction, name: str, for_s: float) -> bool:
        tx.run("delete_expired_names", now=tx.now)
        return tx.one("spend_name", name=name, until=tx.now + int(for_s * 1000)) is not None

    @read
    def is_spent(self, tx: Transaction, name: str) -> bool:
        return tx.one("spent_name", name=name) is not None

    @write_relaxed
    def check_writable(self, tx: Transaction) -> None:
        tx.run("rewrite_secret")


class WorkerStore(Protocol):
    """The part of a store that runs named tasks: a `Store`, or the client of a server that has one."""

    @property
    def url(self) -> str: ...

    @property
    def shared(self) -> bool: ...

    def claim_task(self, task_id: str, worker: str, limits: Limits | None = ...) -> Lease | None: ...

    def report_all(self, reports: Sequence[tuple[Lease, Sequence[Change]]]) -> list[Lease]: ...

    def heartbeat(self, leases: Sequence[Lease], workers: Sequence[Worker]) -> list[LeaseView]: ...

    def remove_workers(self, supervisor_id: str) -> None: ...

    def head(self, task_id: str) -> TaskHead: ...

    def input_requests(self, task_id: str) -> list[InputRequest]: ...

    def answer(self, task_id: str, answers: Mapping[str, tuple[str, Any]]) -> Task: ...

    def watch(self) -> Watch: ...
