"""Passes: with one, a worker that has no password of the store may run one task, by the server's door."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import Any

from itsdangerous import BadData, URLSafeSerializer


@dataclass(frozen=True, slots=True)
class Pass:
    """What a worker may come in for: one task, as one supervisor, until then (milliseconds)."""

    task_id: str
    supervisor_id: str
    until: int


class Passes:
    """Makes and reads passes; they are signed with the store's secret."""

    def __init__(self, secret: bytes) -> None:
        self._signer: Any = URLSafeSerializer(secret, salt="backburner.worker")

    def made_for(self, task_id: str, valid_s: float) -> str:
        supervisor_id = f"sup_{secrets.token_hex(4)}_{secrets.token_hex(4)}"
        return str(self._signer.dumps([task_id, supervisor_id, int((time.time() + valid_s) * 1000)]))

    def read(self, token: str) -> Pass | None:
        """None for one that is not good, or not any more."""
        try:
            found = Pass(*self._signer.loads(token))
        except (BadData, TypeError, ValueError):
            return None
        return found if found.until > time.time() * 1000 else None
