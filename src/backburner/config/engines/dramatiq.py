"""The settings of the engine `dramatiq`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..groups import setting
from .broker import BrokerSettings


@dataclass(frozen=True, slots=True)
class DramatiqSettings(BrokerSettings):
    """The broker by which Dramatiq's workers hear of tasks; engines.md says how."""

    group: ClassVar[str] = "dramatiq"

    url: str = setting(
        "redis://127.0.0.1:6379/0",
        "The broker: Redis (redis://, rediss://) or RabbitMQ (amqp://, amqps://)",
        example='"amqp://lab:secret@rabbit.example/lab"',
    )
