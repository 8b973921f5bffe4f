"""The outbox of a store: messages to endpoints, written with their task's end, until they are delivered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message for one endpoint. `delivery_id` is its `webhook-id`, the same with each try.

    It is due at `due_at`, or was given up if that is None. `attempts` were made, of which `last_error` tells.
    """

    delivery_id: str
    task_id: str
    owner: str
    url: str
    endpoint: str
    body: str
    created_at: int
    due_at: int | None
    attempts: int
    last_error: str


class Outbox(Protocol):
    """A store's verbs for deliveries. A task's end puts them in; see `Store` for what all verbs promise."""

    def due_deliveries(self, limit: int = 32) -> list[Delivery]:
        """Those that are due, the longest first."""
        ...

    def lease_delivery(self, delivery: Delivery, lease_s: float) -> bool:
        """Take the next try of a delivery that was found due; False if somebody else has it.

        It is due again after `lease_s` if nobody says what became of it. The lease is on disk only with the
        next write, so a power cut may lead to one more try.
        """
        ...

    def delivered(self, delivery: Delivery) -> None:
        """It arrived: it leaves the outbox, and the task's trail says so."""
        ...

    def not_delivered(self, delivery: Delivery, error: str, again_in_s: float | None) -> None:
        """It did not arrive. With no further try (None) it is given up, and the task's trail says so."""
        ...

    def put_off_deliveries(self, endpoint: str, for_s: float) -> None:
        """Let what is due for an endpoint wait for so long: it does not answer."""
        ...

    def deliveries(self, owner: str | None = None, limit: int = 500) -> list[Delivery]:
        """All that is in the outbox, given up or not, oldest first."""
        ...

    def retry_delivery(self, delivery_id: str, owner: str | None = None) -> bool:
        """Make a delivery due now, as if it had never been tried; False if there is none."""
        ...

    def has_deliveries(self) -> bool:
        """Whether one waits to be made, now or later."""
        ...
