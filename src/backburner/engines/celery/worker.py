"""Module for Celery's own command: `celery -A backburner.engines.celery.worker worker`."""

from __future__ import annotations

from typing import Any

from celery.signals import celeryd_after_setup, worker_shutdown, worker_shutting_down

from ..brokers.worker import SupervisorProcess, worker_settings
from . import ENGINE, RING, make_celery

settings = worker_settings()
supervisor = SupervisorProcess(settings, ENGINE)
app = make_celery(settings.broker, settings.queues_of(ENGINE))


def start(instance: Any, **_: Any) -> None:
    supervisor.start(app.amqp.queues.consume_from, instance.concurrency)


def stop(**_: Any) -> None:
    supervisor.stop()


def close(**_: Any) -> None:
    supervisor.close()


app.task(supervisor.ring, name=RING)
celeryd_after_setup.connect(start)
worker_shutting_down.connect(stop)
worker_shutdown.connect(close)
