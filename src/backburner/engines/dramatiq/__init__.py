"""Engine `dramatiq`: messages over Redis or RabbitMQ tell Dramatiq workers to claim tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import pika.exceptions
import redis
from dramatiq import Broker, Message, Middleware
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.brokers.redis import RedisBroker
from dramatiq.errors import BrokerError
from redis.backoff import NoBackoff
from redis.retry import Retry

from ...core.task import Task
from ...settings import BrokerSettings, Settings
from ...store.protocol import ExternalJob
from ..brokers import ANSWER_S, broker_errors, compare_counts
from ..brokers.worker import exec_worker, worker_slots
from ..external import JobStatus, Secret

ENGINE = "dramatiq"
#: Dramatiq's name for the actor of a message.
RING = "backburner_ring"
_ERRORS = (BrokerError, redis.RedisError, pika.exceptions.AMQPError, OSError)

T = TypeVar("T")


def make_queue(settings: Settings, queues: Sequence[str], secret: Secret) -> DramatiqQueue:
    return DramatiqQueue(settings.broker, queues)


def work(settings: Settings, data_dir: Path, target: str) -> None:
    """Replace this process by Dramatiq's worker command, for all queues that have workers here."""
    slots = worker_slots(settings, ENGINE)
    command = ["dramatiq", "backburner.engines.dramatiq.worker", "--processes", "1"]
    command += [
        "--threads",
        str(len(slots)),
        "--queues",
        *(settings.broker.name_of(ENGINE, queue) for queue in slots),
    ]
    exec_worker(command, settings, data_dir, target)


def make_broker(settings: BrokerSettings, middleware: Sequence[Middleware] = ()) -> Broker:
    """Return the broker of the settings. It connects on first use.

    Dramatiq's default middleware is left out: time limits and retries are the store's.
    """
    if settings.is_redis:
        client = redis.Redis.from_url(
            settings.url,
            socket_timeout=ANSWER_S,
            socket_connect_timeout=ANSWER_S,
            retry=Retry(NoBackoff(), 1),  # the server may have closed an idle connection
        )
        made: Broker = RedisBroker(client=client, middleware=list(middleware))  # type: ignore[no-untyped-call]
        return made
    broker = RabbitmqBroker(url=settings.url, middleware=list(middleware))
    for server in broker.parameters if isinstance(broker.parameters, list) else [broker.parameters]:
        server.socket_timeout = server.stack_timeout = server.blocked_connection_timeout = ANSWER_S
        server.virtual_host = server.virtual_host or "/"  # Celery writes it as `amqp://host//`
    return broker


class DramatiqQueue:
    """An ExternalQueue: each of our queues is one of Dramatiq's, and a message has no name that is kept."""

    name = ENGINE

    def __init__(self, settings: BrokerSettings, queues: Sequence[str]) -> None:
        self._settings = settings
        self._broker = make_broker(settings)
        for queue in queues:
            self._broker.declare_queue(settings.name_of(ENGINE, queue))

    def submit(self, tasks: Sequence[Task]) -> Mapping[str, str]:
        queue = tasks[0].queue
        name = self._settings.name_of(ENGINE, queue)

        def send() -> None:
            for _ in tasks:
                message: Message[None] = Message(
                    queue_name=name, actor_name=RING, args=(queue,), kwargs={}, options={}
                )
                self._broker.enqueue(message)
            # RabbitMQ does not confirm messages; an answer that follows them shows that they arrived.
            self._waiting(name)

        with broker_errors(ENGINE, self._settings, _ERRORS):
            self._connected(send, name)
        return {task.task_id: "" for task in tasks}

    def status(self, jobs: Sequence[ExternalJob]) -> Mapping[str, JobStatus]:
        def waiting(queue: str) -> int:
            name = self._settings.name_of(ENGINE, queue)
            return self._connected(lambda: self._waiting(name, declare=True), name)

        with broker_errors(ENGINE, self._settings, _ERRORS):
            return compare_counts(jobs, waiting)

    def cancel(self, jobs: Sequence[ExternalJob]) -> None:
        """Do nothing: a message that finds no task is done."""

    def close(self) -> None:
        self._broker.close()

    def _connected(self, do: Callable[[], T], name: str) -> T:
        """Call `do`; once more on a new connection, if RabbitMQ has closed an idle one or lost the queue."""
        try:
            return do()
        except pika.exceptions.AMQPError:
            assert isinstance(self._broker, RabbitmqBroker), "the error is one of RabbitMQ's"
            del self._broker.connection
            self._broker.queues_pending.add(name)
            return do()

    def _waiting(self, name: str, *, declare: bool = False) -> int:
        """Return how many messages wait in a queue."""
        if isinstance(self._broker, RedisBroker):
            return int(self._broker.client.llen(f"{self._broker.namespace}:{name}"))
        assert isinstance(self._broker, RabbitmqBroker), "there are two brokers"
        if declare:
            self._broker.declare_queue(name, ensure=True)
        found = self._broker.channel.queue_declare(name, passive=True)
        return int(found.method.message_count)
