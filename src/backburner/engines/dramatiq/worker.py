"""The module for Dramatiq's own command: `dramatiq backburner.engines.dramatiq.worker`."""

from __future__ import annotations

import dramatiq
from dramatiq import Actor, Broker, Middleware, Worker

from ..outside.broker_worker import Feeds, worker_settings
from .brokers import make_broker


class OneTaskAtATime(Middleware):
    """A process has one thread and one message, whatever the command line says, and lets go of its feeds."""

    def __init__(self, feeds: Feeds) -> None:
        self._feeds = feeds

    def before_worker_boot(self, broker: Broker, worker: Worker) -> None:
        worker.worker_threads = worker.queue_prefetch = 1
        broker.delay_queues.clear()  # nothing of ours is delayed: nobody need look for it

    def after_worker_shutdown(self, broker: Broker, worker: Worker) -> None:
        self._feeds.close()


def _declare(queue: str, name: str) -> None:
    def run_task(task_id: str) -> None:
        feeds.run(queue, task_id)

    Actor(run_task, broker=broker, actor_name=name, queue_name=name, priority=0, options={})


settings = worker_settings()
feeds = Feeds(settings)
broker = make_broker(settings.dramatiq, [OneTaskAtATime(feeds)])
dramatiq.set_broker(broker)
for queue in settings.queues_of("dramatiq"):
    _declare(queue, settings.dramatiq.name_of(queue))
