"""Calls whose answer nobody has got yet: the record of one, and what a store does with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call of a slow tool whose answer nobody has got yet, as all processes of a store know of it.

    Its caller waits for `attended_ms` more, by all that is known now, unless it has `given_up`, and how.
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
    """A line for a task's audit trail that moves nothing."""

    task_id: str
    signal: str
    detail: Mapping[str, Any]


class CallStore(Protocol):
    """The verbs of a store about open calls. What they write is on disk with the store's next write."""

    def write_calls(
        self, kept: Sequence[OpenCall], closed: Sequence[str] = (), notes: Sequence[Note] = ()
    ) -> None:
        """Keep these as they are now, forget those of the tasks that are `closed`, and take notes.

        Those of tasks that are gone are passed over.
        """
        ...

    def has_calls(self) -> bool:
        """Whether any call is open."""
        ...

    def calls_like(self, owner: str, tool_name: str, inputs_hash: str) -> list[OpenCall]:
        """The open calls of that owner, of that tool and with these inputs; the latest first."""
        ...

    def forget_calls(self, finished_before: int) -> int:
        """Drop the calls of tasks that finished before then, and of those that are gone."""
        ...
