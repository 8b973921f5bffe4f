"""CeleryQueue: ids of tasks as messages of Celery."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import amqp.exceptions
import redis
from kombu import Producer
from kombu.exceptions import KombuError

from ...config import CelerySettings
from ...hand_out import HandOut
from ...task import Task
from ..outside.broker_messages import answering, level, seen_by_number
from ..outside.queue import Sighting
from .celery_app import RUN_TASK, broker_priority, make_celery

T = TypeVar("T")

#: What goes wrong with a broker.
_TROUBLE = (KombuError, amqp.exceptions.AMQPError, redis.RedisError, OSError)


class CeleryQueue:
    """Each of our queues is one of Celery's. A job is named by the id of its task and something new.

    Something new, because workers remember for long what was revoked, and a task may be run again.
    """

    name = "celery"

    def __init__(self, settings: CelerySettings, queues: Sequence[str]) -> None:
        self._settings = settings
        self._celery = make_celery(settings, queues)

    def hand_out(self, tasks: Sequence[Task]) -> Mapping[str, str]:
        jobs = {task.task_id: f"{task.task_id}:{secrets.token_hex(4)}" for task in tasks}

        def send(producer: Producer) -> None:
            for task in tasks:
                self._celery.send_task(
                    RUN_TASK,
                    args=(task.task_id,),
                    task_id=jobs[task.task_id],
                    queue=self._settings.name_of(task.queue),
                    priority=broker_priority(self._settings, level(task.priority)),
                    producer=producer,
                    retry=False,
                )
            if not self._settings.is_redis:  # that answers each of them
                # Messages are not confirmed, but an answer that comes after them shows that they have come.
                self._waiting(tasks[0].queue, producer, passive=True)

        with answering(self._settings, _TROUBLE):
            try:
                self._connected(send)
            except amqp.exceptions.NotFound:  # there was no such queue yet, or somebody has removed it
                self._connected(lambda producer: self._waiting(tasks[0].queue, producer))
                self._connected(send)
        return jobs

    def look(self, handed_out: Sequence[HandOut]) -> Mapping[str, Sighting]:
        with answering(self._settings, _TROUBLE):
            return self._connected(
                lambda producer: seen_by_number(handed_out, lambda queue: self._waiting(queue, producer))
            )

    def withdraw(self, handed_out: Sequence[HandOut]) -> None:
        """Revokes the jobs: workers drop them when they get them, and monitors are told."""
        if jobs := [one.job for one in handed_out if one.job]:
            with answering(self._settings, _TROUBLE):
                self._celery.control.revoke(jobs)

    def close(self) -> None:
        self._celery.close()

    def _connected(self, do: Callable[[Producer], T]) -> T:
        """What `do` gives; once more on a new connection, where one that was idle has died."""
        with self._celery.producer_or_acquire() as producer:
            result: T = producer.connection.ensure(producer, do, max_retries=1, interval_start=0)(producer)
            return result

    def _waiting(self, queue: str, producer: Producer, *, passive: bool = False) -> int:
        """How many messages of a queue no worker has. A queue that was removed is made again.

        Not where it is asked `passive`; then it raises NotFound.
        """
        of_celery = self._celery.amqp.queues[self._settings.name_of(queue)]
        return int(of_celery(producer.channel).queue_declare(passive=passive).message_count)
