"""Module for Dramatiq's own command: `dramatiq backburner.engines.dramatiq.worker`."""

from __future__ import annotations

import dramatiq
from dramatiq import Actor, Broker, Middleware, Worker

from ..brokers.worker import SupervisorProcess, worker_settings
from . import ENGINE, RING, make_broker


class Supervision(Middleware):
    """Starts and stops the supervisor with the worker."""

    def before_worker_boot(self, broker: Broker, worker: Worker) -> None:
        queues = supervisor.start(worker.consumer_whitelist or names, worker.worker_threads)
        worker.worker_threads = queues
        worker.queue_prefetch = 1  # of each queue: a message that has to wait holds up no other queue
        broker.delay_queues.clear()  # no message is delayed

    def before_worker_shutdown(self, broker: Broker, worker: Worker) -> None:
        supervisor.stop()

    def after_worker_shutdown(self, broker: Broker, worker: Worker) -> None:
        supervisor.close()


settings = worker_settings()
supervisor = SupervisorProcess(settings, ENGINE)
broker = make_broker(settings.broker, [Supervision()])
dramatiq.set_broker(broker)
names = [settings.broker.name_of(ENGINE, queue) for queue in settings.queues_of(ENGINE)]
for name in names:
    broker.declare_queue(name)
Actor(supervisor.ring, broker=broker, actor_name=RING, queue_name=names[0], priority=0, options={})
