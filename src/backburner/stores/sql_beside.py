"""The verbs of a Store beside those about tasks: calls, queues outside, endpoints, clients, looking."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from ..client_time_outs import ClientTimeOut, Transport
from ..endings import Ending, Mark
from ..hand_out import HandOut
from ..looking import EVENTS_IN_ORDER, Ended, Happenings, PausedQueue
from ..open_call import Note, OpenCall
from ..task import (
    Task,
)
from ..webhooks.outbox import Delivery
from . import (
    calls,
    clients,
    deliveries,
    endings,
    hand_outs,
    looking,
    rows,
)
from .transaction import Transaction

T = TypeVar("T")


def _timed(verb: Callable[..., T], seen: Callable[[float], object]) -> Callable[..., T]:
    """The same, told about after each time."""

    def timed(*arguments: Any, **options: Any) -> T:
        began = time.perf_counter()
        try:
            return verb(*arguments, **options)
        finally:
            seen(time.perf_counter() - began)

    return timed


class SqlBeside(ABC):
    """How a subclass reads and writes, and what needs no more than that."""

    @abstractmethod
    def _read(self, work: Callable[[Transaction], T], snapshot: bool = False) -> T:
        """Run `work`, which only reads; with `snapshot`, all its statements see one moment of the store."""

    @abstractmethod
    def _write(self, work: Callable[[Transaction], T], durable: bool = True) -> T:
        """Run `work` in a transaction that may be shared with other callers; it is whole or not at all."""

    def _all(self, name: str, **parameters: Any) -> Sequence[Any]:
        return self._read(lambda tx: tx.all(name, **parameters))

    # -- open calls

    def write_calls(
        self, kept: Sequence[OpenCall], closed: Sequence[str] = (), notes: Sequence[Note] = ()
    ) -> None:
        self._write(lambda tx: calls.write(tx, kept, closed, notes), durable=False)

    def has_calls(self) -> bool:
        return self._read(lambda tx: tx.one("any_call") is not None)

    def calls_like(self, owner: str, tool_name: str, inputs_hash: str) -> list[OpenCall]:
        return self._read(lambda tx: calls.like(tx, owner, tool_name, inputs_hash))

    def forget_calls(self, finished_before: int) -> int:
        return self._write(
            lambda tx: len(tx.all("forget_calls", finished_before=finished_before)), durable=False
        )

    # -- queues outside

    def begin_hand_out(
        self,
        engine: str,
        queues: Sequence[str],
        *,
        task_ids: Sequence[str] | None = None,
        but_not: Collection[str] = (),
        limit: int = 100,
    ) -> list[Task]:
        return self._write(lambda tx: hand_outs.begin(tx, engine, queues, task_ids, but_not, limit))

    def handed_out(self, jobs: Mapping[str, str]) -> None:
        # A name that a power cut takes is a job of which nothing is known.
        self._write(lambda tx: hand_outs.handed_out(tx, jobs), durable=False)

    def not_handed_out(self, task_ids: Sequence[str], problem: str, again_in_ms: int) -> None:
        self._write(lambda tx: hand_outs.not_handed_out(tx, task_ids, problem, again_in_ms))

    def hand_outs(self, engine: str) -> list[HandOut]:
        return self._read(lambda tx: hand_outs.of(tx, engine))

    def take_back(self, task_ids: Sequence[str], *, ended: bool = False) -> None:
        self._write(lambda tx: hand_outs.take_back(tx, task_ids, ended))

    # -- telling endpoints

    def due_deliveries(self, limit: int = 32) -> list[Delivery]:
        return self._read(lambda tx: deliveries.due(tx, limit))

    def lease_delivery(self, delivery: Delivery, lease_s: float) -> bool:
        return self._write(lambda tx: deliveries.lease(tx, delivery, lease_s), durable=False)

    def delivered(self, delivery: Delivery) -> None:
        self._write(lambda tx: deliveries.delivered(tx, delivery))

    def not_delivered(self, delivery: Delivery, error: str, again_in_s: float | None) -> None:
        self._write(lambda tx: deliveries.not_delivered(tx, delivery, error, again_in_s))

    def put_off_deliveries(self, endpoint: str, for_s: float) -> None:
        self._write(
            lambda tx: tx.run("put_off_deliveries", endpoint=endpoint, until=tx.now + int(for_s * 1000))
        )

    def deliveries(self, owner: str | None = None, limit: int = 500) -> list[Delivery]:
        found = self._all("deliveries", owner=owner, limit=limit)
        return [Delivery(**rows.by_name(row)) for row in found]

    def retry_delivery(self, delivery_id: str, owner: str | None = None) -> bool:
        def write(tx: Transaction) -> bool:
            return tx.one("retry_delivery", delivery_id=delivery_id, owner=owner, now=tx.now) is not None

        return self._write(write)

    def has_deliveries(self) -> bool:
        return bool(self._all("a_delivery_waits"))

    # -- clients

    def keep_time_out(self, seen: ClientTimeOut) -> None:
        self._write(lambda tx: clients.keep(tx, seen))

    def time_outs(self) -> list[ClientTimeOut]:
        return self._read(clients.kept)

    def disprove_time_outs(self, name: str, version: str, transport: Transport, waited_ms: int) -> int:
        return self._write(lambda tx: clients.disprove(tx, name, version, transport, waited_ms))

    def forget_time_outs(self, name: str | None = None) -> int:
        return self._write(lambda tx: clients.forget(tx, name))

    # -- looking from outside

    def happenings(self, after: str | None = None, limit: int = 500) -> Happenings:
        return self._read(lambda tx: looking.happenings(tx, after, limit), snapshot=True)

    def forget_order(self, keep: int = EVENTS_IN_ORDER) -> None:
        self._write(lambda tx: tx.run("forget_event_order", keep=keep), durable=False)

    def ended(
        self,
        since: int,
        until: int,
        every_ms: int,
        *,
        owner: str | None = None,
        tool_name: str | None = None,
        queue: str | None = None,
    ) -> list[Ended]:
        return self._read(lambda tx: looking.ended(tx, since, until, every_ms, owner, tool_name, queue))

    def pause_queue(self, queue: str, by: str) -> None:
        self._write(lambda tx: tx.run("pause_queue", queue=queue, by=by, now=tx.now))

    def resume_queue(self, queue: str) -> None:
        self._write(lambda tx: looking.resume_queue(tx, queue))

    def paused_queues(self) -> list[PausedQueue]:
        return self._read(looking.paused_queues)

    # -- measuring

    def endings(self, after: Mark, until: int, limit: int = 10_000) -> list[Ending]:
        return self._read(lambda tx: endings.after(tx, after, until, limit))

    def observe(self, seen: Callable[[str, float], object]) -> None:
        for kind, name in (("read", "_read"), ("write", "_write")):
            setattr(self, name, _timed(getattr(self, name), partial(seen, kind)))
