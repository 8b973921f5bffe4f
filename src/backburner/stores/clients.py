"""What clients' time-outs taught. Functions over a Transaction."""

from __future__ import annotations

from dataclasses import asdict

from ..client_time_outs import KEPT_OF_A_CLIENT, KEPT_OF_ALL, ClientTimeOut, Transport
from .rows import by_name
from .transaction import Transaction


def keep(tx: Transaction, seen: ClientTimeOut) -> None:
    client = {"name": seen.name, "version": seen.version, "transport": seen.transport}
    tx.run("insert_time_out", **asdict(seen))
    tx.run("forget_old_time_outs", **client, keep=KEPT_OF_A_CLIENT)
    tx.run("forget_oldest_time_outs", keep=KEPT_OF_ALL)


def kept(tx: Transaction) -> list[ClientTimeOut]:
    return [ClientTimeOut(**by_name(row)) for row in tx.all("time_outs")]


def disprove(tx: Transaction, name: str, version: str, transport: Transport, waited_ms: int) -> int:
    client = {"name": name, "version": version, "transport": transport}
    return len(tx.all("forget_disproved_time_outs", **client, waited_ms=waited_ms))


def forget(tx: Transaction, name: str | None) -> int:
    gone = tx.all("forget_all_time_outs") if name is None else tx.all("forget_time_outs_of", name=name)
    return len(gone)
