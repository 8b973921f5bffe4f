"""Engine `celery`: messages over RabbitMQ or Redis tell Celery workers to claim tasks."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import amqp.exceptions
import redis
from celery import Celery
from kombu import Producer, Queue
from kombu.exceptions import KombuError

from ...core.task import Task
from ...settings import BrokerSettings, Settings
from ...store.protocol import ExternalJob
from ..brokers import ANSWER_S, broker_errors, compare_counts
from ..brokers.worker import exec_worker, worker_slots
from ..external import JobStatus, Secret

ENGINE = "celery"
#: Celery's name for the task of a message.
RING = "backburner.ring"
#: So many messages of each queue are handled at once; a message takes as long as a claim.
_THREADS = 2
#: Connection retries: the dispatcher tries again later.
_RETRY = {"max_retries": 1, "interval_start": 0, "interval_step": 0}
_REDIS_TIMEOUTS = {"socket_timeout": ANSWER_S, "socket_connect_timeout": ANSWER_S}
_ERRORS = (KombuError, amqp.exceptions.AMQPError, redis.RedisError, OSError)

T = TypeVar("T")


def make_queue(settings: Settings, queues: Sequence[str], secret: Secret) -> CeleryQueue:
    return CeleryQueue(settings.broker, queues)


def work(settings: Settings, data_dir: Path, target: str) -> None:
    """Replace this process by Celery's worker command, for all queues that have workers here."""
    slots = worker_slots(settings, ENGINE)
    command = ["celery", "-A", "backburner.engines.celery.worker", "worker"]
    command += ["--queues", ",".join(settings.broker.name_of(ENGINE, queue) for queue in slots)]
    command += ["--concurrency", str(_THREADS * len(slots))]
    command += ["--hostname", f"backburner.{os.getpid()}@%h", "--loglevel", "INFO"]
    exec_worker(command, settings, data_dir, target)


def make_celery(settings: BrokerSettings, queues: Sequence[str]) -> Celery:
    """Return a Celery app with these queues of ours. It connects on first use."""
    app = Celery("backburner", broker=settings.url, set_as_current=False)
    names = [settings.name_of(ENGINE, queue) for queue in queues]
    app.conf.update(
        task_queues=[Queue(name, routing_key=name) for name in names],
        task_default_queue=names[0],
        task_create_missing_queues=False,
        task_acks_late=True,  # a worker that dies before it has claimed leaves the message to another
        task_ignore_result=True,  # the store has it
        worker_pool="threads",  # tools run under the supervisor
        worker_prefetch_multiplier=1,
        broker_connection_timeout=ANSWER_S,
        broker_connection_retry_on_startup=True,
        broker_transport_options={**_RETRY, **(_REDIS_TIMEOUTS if settings.is_redis else {})},
    )
    return app


class CeleryQueue:
    """An ExternalQueue: each of our queues is one of Celery's, and a message has no name that is kept."""

    name = ENGINE

    def __init__(self, settings: BrokerSettings, queues: Sequence[str]) -> None:
        self._settings = settings
        self._celery = make_celery(settings, queues)

    def submit(self, tasks: Sequence[Task]) -> Mapping[str, str]:
        queue = tasks[0].queue

        def send(producer: Producer) -> None:
            name = self._settings.name_of(ENGINE, queue)
            for _ in tasks:
                self._celery.send_task(RING, args=(queue,), queue=name, producer=producer, retry=False)
            if not self._settings.is_redis:
                # RabbitMQ does not confirm messages; an answer that follows them shows that they arrived.
                self._waiting(queue, producer, passive=True)

        with broker_errors(ENGINE, self._settings, _ERRORS):
            try:
                self._connected(send)
            except amqp.exceptions.NotFound:  # the queue is new, or was deleted
                self._connected(lambda producer: self._waiting(queue, producer))
                self._connected(send)
        return {task.task_id: "" for task in tasks}

    def status(self, jobs: Sequence[ExternalJob]) -> Mapping[str, JobStatus]:
        with broker_errors(ENGINE, self._settings, _ERRORS):
            return self._connected(
                lambda producer: compare_counts(jobs, lambda queue: self._waiting(queue, producer))
            )

    def cancel(self, jobs: Sequence[ExternalJob]) -> None:
        """Do nothing: a message that finds no task is done."""

    def close(self) -> None:
        self._celery.close()

    def _connected(self, do: Callable[[Producer], T]) -> T:
        """Call `do` with a producer; once more on a new connection, if an idle one has died."""
        with self._celery.producer_or_acquire() as producer:
            result: T = producer.connection.ensure(producer, do, max_retries=1, interval_start=0)(producer)
            return result

    def _waiting(self, queue: str, producer: Producer, *, passive: bool = False) -> int:
        """Return how many messages wait. A missing queue is declared, or raises NotFound if `passive`."""
        declared = self._celery.amqp.queues[self._settings.name_of(ENGINE, queue)]
        return int(declared(producer.channel).queue_declare(passive=passive).message_count)
