"""What Dramatiq's own broker for Redis lacks: levels of priority, a list for each, and a bell for workers."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

import redis
from dramatiq import Message
from dramatiq.broker import Consumer, MessageProxy
from dramatiq.brokers.redis import RedisBroker
from dramatiq.errors import ConnectionClosed

from ..outside.broker_messages import ANSWER_S, TOP_LEVEL

#: So many rings are kept at most. Who hears none looks by himself after a while.
_MOST_RINGS = 100


class LeveledRedisBroker(RedisBroker):
    """A queue is as many of Dramatiq's as there are levels; workers take from the highest that has one.

    A message names its level as it does for RabbitMQ: `broker_priority`. A process has one message at a time,
    whatever queues it works on, also after it had to connect anew. Each message rings: workers that have none
    wait for that, where Dramatiq's own look again and again.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)  # type: ignore[no-untyped-call]
        #: Held while there is a message in this process.
        self.hand = threading.Lock()

    def enqueue(self, message: Message[Any], *, delay: int | None = None) -> Message[Any]:
        key = str(uuid.uuid4())
        message = message.copy(options={"redis_message_id": key})
        self.do_enqueue(list_of(message), key, message.encode())
        self.client.lpush(self._bell(message.queue_name), "")
        return message

    def enqueue_all(self, messages: Sequence[Message[Any]]) -> None:
        for message in messages:
            self.enqueue(message)

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 5000) -> Consumer:
        return LeveledConsumer(self, queue_name, timeout)

    def lists(self, queue_name: str) -> list[str]:
        """The lists of a queue, the highest level first."""
        return [f"{queue_name}.{level}" for level in range(TOP_LEVEL, -1, -1)]

    def _bell(self, queue_name: str) -> str:
        return f"{self.namespace}:{queue_name}.bell"

    def await_ring(self, queue_name: str, timeout_s: float) -> None:
        """Return when a message may have come, or the time is over."""
        self.client.blpop([self._bell(queue_name)], timeout=timeout_s)

    def waiting_in(self, queue_name: str, *, quietly: bool = False) -> list[int]:
        """How many messages each of these lists has that no worker has.

        Who then takes one looks `quietly`: one ring less is kept, since nobody else need come for it, and
        not more than a few that nobody heard.
        """
        names = self.lists(queue_name)
        with self.client.pipeline(transaction=False) as pipeline:
            if quietly:  # first: a ring that comes after the look is for what the look has not seen
                pipeline.lpop(self._bell(queue_name))
                pipeline.ltrim(self._bell(queue_name), 0, _MOST_RINGS - 1)
            for name in names:
                pipeline.llen(f"{self.namespace}:{name}")
            return [int(length) for length in pipeline.execute()[-len(names) :]]

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
        self._timeout_s = min(timeout / 1000, ANSWER_S / 2)

    def __next__(self) -> MessageProxy | None:
        hand = self._broker.hand
        if not hand.acquire(timeout=self._timeout_s):
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
            self._await_ring()
        return message

    def _await_ring(self) -> None:
        try:
            self._broker.await_ring(self._queue_name, self._timeout_s)
        except redis.ConnectionError as error:
            raise _closed(error) from None

    def _fetch(self) -> bytes | None:
        lengths = self._broker.waiting_in(self._queue_name, quietly=True)
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
