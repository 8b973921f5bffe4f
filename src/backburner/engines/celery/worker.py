"""The module for Celery's own command: `celery -A backburner.engines.celery.worker worker`."""

from __future__ import annotations

from typing import Any

from celery.signals import worker_process_shutdown

from ..outside.broker_worker import Feeds, worker_settings
from .celery_app import RUN_TASK, make_celery

settings = worker_settings()
feeds = Feeds(settings)
app = make_celery(settings.celery, settings.queues_of("celery"))
_queues = {settings.celery.name_of(queue): queue for queue in settings.queues_of("celery")}


def run_task(self: Any, task_id: str) -> None:
    """See the next attempt of a task through, if it waits for a worker."""
    feeds.run(_queues[self.request.delivery_info["routing_key"]], task_id)


def let_go(**_: Any) -> None:
    feeds.close()


app.task(run_task, name=RUN_TASK, bind=True)
worker_process_shutdown.connect(let_go)
