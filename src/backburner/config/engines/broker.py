"""What the engines on a message broker have in common in their settings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import urlsplit

from ...errors import ConfigError
from ..groups import setting

_SCHEMES = ("redis", "rediss", "amqp", "amqps")
#: What Dramatiq and RabbitMQ both take as the beginning of a queue's name.
_NAMESPACE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Where an engine's broker is, and what it is used for."""

    group: ClassVar[str]

    url: str = ""
    namespace: str = setting(
        "backburner", "What the names of its queues begin with: one for each app that shares the broker"
    )
    max_processes: int = setting(
        8, "The most worker processes of one queue that one `backburner worker` starts, each for one task"
    )

    def __post_init__(self) -> None:
        if urlsplit(self.url).scheme not in _SCHEMES:  # it is not shown: there may be a password in it
            kinds = ", ".join(f"{scheme}://" for scheme in _SCHEMES)
            reason = f"it is no address of a broker; one begins with {kinds}"
            raise ConfigError(setting=f"{self.group}.url", reason=reason)
        if not _NAMESPACE.fullmatch(self.namespace):
            reason = f"{self.namespace!r} must be letters, digits, - and _, first a letter; for example lab"
            raise ConfigError(setting=f"{self.group}.namespace", reason=reason)
        if self.max_processes < 1:
            raise ConfigError(setting=f"{self.group}.max_processes", reason="it must be at least 1")

    @property
    def is_redis(self) -> bool:
        return self.url.startswith("redis")

    def name_of(self, queue: str) -> str:
        """The broker's name for one of our queues. Dramatiq and Celery make theirs differently."""
        return f"{self.namespace}.{self.group}.{queue}"
