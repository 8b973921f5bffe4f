"""Levels of priority on Redis, of which Dramatiq's own broker knows nothing: a list for each level."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

import redis
from dramatiq import Message
from dramatiq.broker import Consumer, MessageProxy
from dramatiq.brokers.redis import RedisBroker
from dramatiq.common import compute_backoff, q_name
from dramatiq.errors import ConnectionClosed

from ..outside.broker_messages import TOP_LEVEL


class LeveledRedisBroker(RedisBroker):
    """A queue is as many of Dramatiq's as there are levels; workers take from the highest that has one.

    A message names its level as it does for RabbitMQ: `broker_priority`. A process has one message at a time,
    whatever queues it works on, also after it had to connect anew.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)  # type: ignore[no-untyped-call]
        #: Held while there is a message in this process.
        self.hand = threading.Lock()

    def enqueue(self, message: Message[Any], *, delay: int | None = None) -> Message[Any]:
        key = str(uuid.uuid4())
        message = message.copy(options={"redis_message_id": key})
        self.do_enqueue(list_of(message), key, message.encode())
        return message

    def enqueue_all(self, messages: Sequence[Message[Any]]) -> None:
        for message in messages:
            self.enqueue(message)

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 5000) -> Consumer:
        if q_name(queue_name) != queue_name:
            return super().consume(queue_name, prefetch, timeout)  # nothing of ours is delayed
        return LeveledConsumer(self, queue_name, timeout)

    def lists(self, queue_name: str) -> list[str]:
        """The lists of a queue, the highest level first."""
        return [f"{queue_name}.{level}" for level in range(TOP_LEVEL, -1, -1)]

    def waiting_in(self, queue_name: str) -> list[int]:
        """How many messages each of these lists has that no worker has."""
        with self.client.pipeline(transaction=False) as pipeline:
            for name in self.lists(queue_name):
                pipeline.llen(f"{self.namespace}:{name}")
            return [int(length) for length in pipeline.execute()]

    def waiting(self, queue_name: str) -> int:
        """How many messages of a queue no worker has."""
        return sum(self.waiting_in(queue_name))


def list_of(message: Message[Any] | MessageProxy) -> str:
    return f"{message.queue_name}.{message.options['broker_priority']}"


def _closed(error: redis.ConnectionError) -> ConnectionClosed:
    """As Dramatiq knows it: it tries again, later."""
    return ConnectionClosed(error)  # type: ignore[no-untyped-call]


class LeveledConsumer(Consumer):
    """Gives the best message of a queue, if the process has none."""

    def __init__(self, broker: LeveledRedisBroker, queue_name: str, timeout: int) -> None:
        self._broker = broker
        self._queue_name = queue_name
        self._timeout = timeout
        self._misses = 0

    def __next__(self) -> MessageProxy | None:
        hand = self._broker.hand
        if not hand.acquire(timeout=self._timeout / 1000):
            return None
        message = None
        try:
            data = self._fetch()
            message = None if data is None else MessageProxy(Message.decode(data))
        except redis.ConnectionError as error:
            raise _closed(error) from None
        finally:
            if message is None:
                hand.release()
        if message is None:
            self._misses, pause_ms = compute_backoff(self._misses, max_backoff=self._timeout)
            time.sleep(pause_ms / 1000)
        else:
            self._misses = 0
        return message

    def _fetch(self) -> bytes | None:
        lengths = self._broker.waiting_in(self._queue_name)
        for name, length in zip(self._broker.lists(self._queue_name), lengths, strict=True):
            # Another worker may have been quicker.
            if length and (found := self._broker.do_fetch(name, 1)) and found[0] is not None:
                data: bytes = found[0]
                return data
        return None

    def ack(self, message: MessageProxy) -> None:
        self._let_go(self._broker.do_ack, message)

    def nack(self, message: MessageProxy) -> None:
        self._let_go(self._broker.do_nack, message)

    def _let_go(self, command: Any, message: MessageProxy) -> None:
        try:
            command(list_of(message), message.options["redis_message_id"])
        except redis.ConnectionError as error:
            raise _closed(error) from None
        self._broker.hand.release()

    def requeue(self, messages: Iterable[MessageProxy]) -> None:
        for message in messages:
            self._broker.do_requeue(list_of(message), message.options["redis_message_id"])
