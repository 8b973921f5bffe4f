"""Dramatiq's brokers as we use them: with levels of priority, and telling how many messages wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pika.exceptions
import redis
from dramatiq import Message, Middleware
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from redis.backoff import NoBackoff
from redis.retry import Retry

from ...config import DramatiqSettings
from ..outside.broker_messages import ANSWER_S, TOP_LEVEL
from .redis_levels import LeveledRedisBroker

T = TypeVar("T")


def make_broker(
    settings: DramatiqSettings, middleware: Sequence[Middleware]
) -> LeveledRedisBroker | LeveledRabbitmqBroker:
    """The broker of the settings. It is not connected before it is used.

    Of Dramatiq's usual middleware there is none: its time limit and its retries would be beside ours.
    """
    if not settings.is_redis:
        return LeveledRabbitmqBroker(settings.url, middleware)
    client = redis.Redis.from_url(
        settings.url,
        socket_timeout=ANSWER_S,
        socket_connect_timeout=ANSWER_S,
        retry=Retry(NoBackoff(), 1),  # once more at once: the server may have ended an idle connection
    )
    return LeveledRedisBroker(client=client, namespace="dramatiq", middleware=list(middleware))


class LeveledRabbitmqBroker(RabbitmqBroker):
    """RabbitMQ keeps priorities itself. It confirms no message: one that is lost is sent again."""

    def __init__(self, url: str, middleware: Sequence[Middleware]) -> None:
        super().__init__(url=url, max_priority=TOP_LEVEL, middleware=list(middleware))
        for server in self.parameters if isinstance(self.parameters, list) else [self.parameters]:
            server.socket_timeout = server.stack_timeout = server.blocked_connection_timeout = ANSWER_S
            server.virtual_host = server.virtual_host or "/"  # `amqp://host//` is how Celery writes that

    def enqueue_all(self, messages: Sequence[Message[Any]]) -> None:
        """Send messages of one queue. An answer that comes after them shows that they have come."""

        def send() -> None:
            for message in messages:
                self.enqueue(message)
            self._ready(messages[0].queue_name)

        self._twice(send, messages[0].queue_name)

    def waiting(self, queue_name: str) -> int:
        """How many messages of a queue no worker has. A queue that was removed is made again."""

        def ask() -> int:
            self.declare_queue(queue_name, ensure=True)
            return self._ready(queue_name)

        return self._twice(ask, queue_name)

    def _twice(self, do: Callable[[], T], queue_name: str) -> T:
        """What it gives, at once or on a new connection: the server may have ended an idle one."""
        try:
            return do()
        except pika.exceptions.AMQPError:
            del self.connection
            self.queues_pending.add(queue_name)
            return do()

    def _ready(self, queue_name: str) -> int:
        found: Any = self.channel.queue_declare(queue_name, passive=True)
        return int(found.method.message_count)
