"""DramatiqQueue: ids of tasks as messages of Dramatiq."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pika.exceptions
import redis
from dramatiq import Message
from dramatiq.errors import BrokerError

from ...config import DramatiqSettings
from ...hand_out import HandOut
from ...task import Task
from ..outside.broker_messages import answering, level, seen_by_number
from ..outside.queue import Sighting
from .brokers import make_broker

#: What goes wrong with a broker.
_TROUBLE = (BrokerError, redis.RedisError, pika.exceptions.AMQPError, OSError)


class DramatiqQueue:
    """Each of our queues is one of Dramatiq's. Jobs have no names: a message cannot be asked for."""

    name = "dramatiq"

    def __init__(self, settings: DramatiqSettings, queues: Sequence[str]) -> None:
        self._settings = settings
        self._broker = make_broker(settings, [])
        for queue in queues:
            self._broker.declare_queue(settings.name_of(queue))

    def hand_out(self, tasks: Sequence[Task]) -> Mapping[str, str]:
        with answering(self._settings, _TROUBLE):
            self._broker.enqueue_all([self._message(task) for task in tasks])
        return {task.task_id: "" for task in tasks}

    def _message(self, task: Task) -> Message[None]:
        name = self._settings.name_of(task.queue)
        options = {"broker_priority": level(task.priority)}
        return Message(queue_name=name, actor_name=name, args=(task.task_id,), kwargs={}, options=options)

    def look(self, handed_out: Sequence[HandOut]) -> Mapping[str, Sighting]:
        with answering(self._settings, _TROUBLE):
            return seen_by_number(handed_out, self._waiting)

    def _waiting(self, queue: str) -> int:
        return self._broker.waiting(self._settings.name_of(queue))

    def withdraw(self, handed_out: Sequence[HandOut]) -> None:
        """Dramatiq cannot take a message back. The worker that gets it sees that its task is over."""

    def close(self) -> None:
        self._broker.close()
