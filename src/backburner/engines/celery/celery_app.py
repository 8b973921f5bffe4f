"""The Celery app that the queue and its workers share, so that both mean the same queues."""

from __future__ import annotations

from collections.abc import Sequence

from celery import Celery
from kombu import Queue

from ...config import CelerySettings
from ..outside.broker_messages import ANSWER_S, TOP_LEVEL

#: Celery's name for what a worker does with an id.
RUN_TASK = "backburner.run_task"

#: How often a connection is tried where nobody says: who hands out tasks tries again later.
_PATIENCE = {"max_retries": 1, "interval_start": 0, "interval_step": 0}
_OF_REDIS = {
    "priority_steps": list(range(TOP_LEVEL + 1)),
    "queue_order_strategy": "priority",
    "socket_timeout": ANSWER_S,
    "socket_connect_timeout": ANSWER_S,
}


def make_celery(settings: CelerySettings, queues: Sequence[str]) -> Celery:
    """A Celery app with these queues of ours. It is not connected before it is used."""
    app = Celery("backburner", broker=settings.url, set_as_current=False)
    app.conf.update(
        task_queues=[_queue(settings, name) for name in queues],
        task_default_queue=settings.name_of(queues[0]),
        task_create_missing_queues=False,
        task_acks_late=True,
        worker_prefetch_multiplier=1,  # with the above: a process has one message, that of its task
        task_ignore_result=True,  # the store has it
        task_send_sent_event=settings.events,
        worker_send_task_events=settings.events,
        broker_connection_timeout=ANSWER_S,
        broker_connection_retry_on_startup=True,
        broker_transport_options={**_PATIENCE, **(_OF_REDIS if settings.is_redis else {})},
    )
    return app


def _queue(settings: CelerySettings, queue: str) -> Queue:
    name = settings.name_of(queue)
    return Queue(name, routing_key=name, max_priority=TOP_LEVEL)


def broker_priority(settings: CelerySettings, level: int) -> int:
    """A level as Celery wants it: RabbitMQ takes the highest number first, and Redis the lowest."""
    return TOP_LEVEL - level if settings.is_redis else level
