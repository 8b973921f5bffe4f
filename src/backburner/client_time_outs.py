"""Time-outs of clients on held calls, as a store keeps them: what patience learns from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

#: So many time-outs of one client are kept, and so many of all: names come from clients.
KEPT_OF_A_CLIENT, KEPT_OF_ALL = 10, 1000

Transport = Literal["stdio", "http"]


@dataclass(frozen=True, slots=True)
class ClientTimeOut:
    """A client gave a held call up after `waited_ms`, the last `silent_ms` of them without progress."""

    name: str
    version: str
    transport: Transport
    seen_at: int
    waited_ms: int
    silent_ms: int


class KeepsTimeOuts(Protocol):
    """The verbs of a store that are about clients."""

    def keep_time_out(self, seen: ClientTimeOut) -> None:
        """Keep it with the last ten of its client; of all clients, the last thousand are kept."""
        ...

    def time_outs(self) -> list[ClientTimeOut]:
        """All that are kept, those of one client together, the latest last."""
        ...

    def disprove_time_outs(self, name: str, version: str, transport: Transport, waited_ms: int) -> int:
        """Forget those of this client that were after less than `waited_ms`; says how many they were."""
        ...

    def forget_time_outs(self, name: str | None = None) -> int:
        """Forget those of all clients of that name, or of all; says how many they were."""
        ...
