"""The settings of the engine `celery`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..groups import setting
from .broker import BrokerSettings


@dataclass(frozen=True, slots=True)
class CelerySettings(BrokerSettings):
    """The broker by which Celery's workers hear of tasks; engines.md says how."""

    group: ClassVar[str] = "celery"

    url: str = setting(
        "amqp://guest:guest@127.0.0.1:5672//",
        "The broker: RabbitMQ (amqp://, amqps://) or Redis (redis://, rediss://)",
        example='"redis://:secret@redis.example/0"',
    )
    events: bool = setting(
        False,
        "Whether workers tell Celery's monitors of each task from the start, and servers of each one sent",
    )
