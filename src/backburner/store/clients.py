"""Clients: calls that still wait for their answer, and the timeouts of clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..core.monitoring import KEPT_OF_A_CLIENT, KEPT_OF_ALL, ClientTimeout, Transport
from .sql import rows
from .sql.transaction import SqlBase, Transaction, read, write, write_relaxed


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call of a slow tool that has not been answered yet.

    The caller is expected to wait for `attended_ms` more, unless it has `given_up`, which says how.
    """

    task_id: str
    owner: str
    tool_name: str
    inputs_hash: str
    attended_ms: int
    given_up: str | None = None

    @property
    def is_attended(self) -> bool:
        return self.given_up is None and self.attended_ms > 0


@dataclass(frozen=True, slots=True)
class Note:
    """An event for a task's audit trail that changes no state."""

    task_id: str
    signal: str
    detail: Mapping[str, Any]


class ClientStore(Protocol):
    """Open calls are written with relaxed durability."""

    def write_calls(
        self, kept: Sequence[OpenCall], closed: Sequence[str] = (), notes: Sequence[Note] = ()
    ) -> None:
        """Upsert open calls, delete those of `closed` tasks, and add notes. Ignores tasks that are gone."""
        ...

    def has_calls(self) -> bool: ...

    def calls_like(self, owner: str, tool_name: str, inputs_hash: str) -> list[OpenCall]:
        """Return the open calls with the same owner, tool and inputs, latest first."""
        ...

    def forget_calls(self, finished_before: int) -> int:
        """Delete the calls of tasks that finished before then or are gone."""
        ...

    def keep_time_out(self, seen: ClientTimeout) -> None:
        """Store a timeout. The last ten of each client remain, and the last thousand of all."""
        ...

    def time_outs(self) -> list[ClientTimeout]:
        """Return all timeouts, by client, oldest first."""
        ...

    def disprove_time_outs(self, name: str, version: str, transport: Transport, waited_ms: int) -> int:
        """Delete a client's timeouts that are shorter than `waited_ms`. Return their number."""
        ...

    def forget_time_outs(self, name: str | None = None) -> int:
        """Delete the timeouts of all clients with that name, or of all clients. Return their number."""
        ...


class SqlClients(SqlBase):
    @write_relaxed
    def write_calls(
        self,
        tx: Transaction,
        kept: Sequence[OpenCall],
        closed: Sequence[str] = (),
        notes: Sequence[Note] = (),
    ) -> None:
        calls = [{**rows.values_of(call), "attended_until": tx.now + call.attended_ms} for call in kept]
        tx.many("upsert_call", calls)
        tx.many("delete_call", [{"task_id": task_id} for task_id in closed])
        for note in notes:
            tx.note(note.task_id, note.signal, **note.detail)

    @read
    def has_calls(self, tx: Transaction) -> bool:
        return tx.one("any_open_call") is not None

    @read
    def calls_like(self, tx: Transaction, owner: str, tool_name: str, inputs_hash: str) -> list[OpenCall]:
        found = tx.all("matching_calls", owner=owner, tool_name=tool_name, inputs_hash=inputs_hash)
        return [rows.record(OpenCall, row, attended_ms=row["attended_until"] - tx.now) for row in found]

    @write_relaxed
    def forget_calls(self, tx: Transaction, finished_before: int) -> int:
        return len(tx.all("delete_finished_calls", finished_before=finished_before))

    @write
    def keep_time_out(self, tx: Transaction, seen: ClientTimeout) -> None:
        client = {"name": seen.name, "version": seen.version, "transport": seen.transport}
        tx.run("insert_client_timeout", **rows.values_of(seen))
        tx.run("trim_client_timeouts", **client, keep=KEPT_OF_A_CLIENT)
        tx.run("trim_all_client_timeouts", keep=KEPT_OF_ALL)

    @read
    def time_outs(self, tx: Transaction) -> list[ClientTimeout]:
        return [rows.record(ClientTimeout, row) for row in tx.all("client_timeouts")]

    @write
    def disprove_time_outs(
        self, tx: Transaction, name: str, version: str, transport: Transport, waited_ms: int
    ) -> int:
        client = {"name": name, "version": version, "transport": transport}
        return len(tx.all("delete_shorter_client_timeouts", **client, waited_ms=waited_ms))

    @write
    def forget_time_outs(self, tx: Transaction, name: str | None = None) -> int:
        if name is None:
            return len(tx.all("delete_all_client_timeouts"))
        return len(tx.all("delete_client_timeouts", name=name))
