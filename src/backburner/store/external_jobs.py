"""Jobs of external queues: the tasks that an engine gave to Celery, Dramatiq, Slurm or AWS Batch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..core.lifecycle import State
from ..core.task import Task
from .leases import make_ready
from .sql import rows
from .sql.transaction import SqlBase, Transaction, read, write, write_relaxed


@dataclass(frozen=True, slots=True)
class ExternalJob:
    """The job of an external queue for a task's next attempt.

    `job` is the queue's id of it; empty while it is unknown, and then the job may not exist. `state` is the
    task's, and `waits` says whether the attempt has not begun. `ended` counts jobs that ended before that.
    """

    task_id: str
    engine: str
    queue: str
    attempt: int
    job: str
    handed_at: int
    ended: int
    state: State
    waits: bool

    @property
    def came_back(self) -> bool:
        """Return whether the attempt began and its task is queued again."""
        return self.state is State.QUEUED and not self.waits


class ExternalJobStore(Protocol):
    def begin_hand_out(
        self,
        engine: str,
        queues: Sequence[str],
        *,
        task_ids: Sequence[str] | None = None,
        but_not: Collection[str] = (),
        limit: int = 100,
    ) -> list[Task]:
        """Assign ready tasks without a job to this engine, best first, so that no other process does.

        With `task_ids`, only those; `but_not` are left for later. A new task that is `handed_to` an engine is
        assigned by its submission.
        """
        ...

    def handed_out(self, jobs: Mapping[str, str]) -> None:
        """Set the job ids of tasks."""
        ...

    def not_handed_out(self, task_ids: Sequence[str], problem: str, again_in_ms: int) -> None:
        """Record why the queue refused these tasks, which are assigned again later."""
        ...

    def hand_outs(self, engine: str) -> list[ExternalJob]: ...

    def take_back(self, task_ids: Sequence[str], *, ended: bool = False) -> None:
        """Remove the jobs of tasks. Tasks that still wait are assigned again; `ended` counts an ended job."""
        ...


class SqlExternalJobs(SqlBase):
    @write
    def begin_hand_out(
        self,
        tx: Transaction,
        engine: str,
        queues: Sequence[str],
        *,
        task_ids: Sequence[str] | None = None,
        but_not: Collection[str] = (),
        limit: int = 100,
    ) -> list[Task]:
        make_ready(tx, tx.one("next_ready_at"))
        most = limit + len(but_not)
        results = [
            tx.send("tasks_without_job", queue=queue, task_id=task_id, limit=most, now=tx.now)
            for queue in queues
            for task_id in ([None] if task_ids is None else task_ids)
        ]
        ready = [row["task_id"] for result in results for row in result.fetchall()]
        chosen = [task_id for task_id in ready if task_id not in but_not][:limit]
        results = [
            tx.send("claim_external_job", task_id=task_id, engine=engine, now=tx.now) for task_id in chosen
        ]
        claimed = [row["task_id"] for result in results if (row := result.fetchone()) is not None]
        results = [tx.send("get_task", task_id=task_id) for task_id in claimed]
        return [rows.task(row) for result in results if (row := result.fetchone()) is not None]

    @write_relaxed  # a lost id only makes the job unknown
    def handed_out(self, tx: Transaction, jobs: Mapping[str, str]) -> None:
        tx.many("set_job", [{"task_id": task_id, "job": job} for task_id, job in jobs.items()])

    @write
    def not_handed_out(
        self, tx: Transaction, task_ids: Sequence[str], problem: str, again_in_ms: int
    ) -> None:
        failed = {"problem": problem, "again_at": tx.now + again_in_ms}
        tx.many("fail_external_job", [{"task_id": task_id, **failed} for task_id in task_ids])
        tx.topics.update(f"task:{task_id}" for task_id in task_ids)

    @read
    def hand_outs(self, tx: Transaction, engine: str) -> list[ExternalJob]:
        return [
            rows.record(ExternalJob, row, state=State(row["state"]), waits=bool(row["waits"]))
            for row in tx.all("external_jobs", engine=engine)
        ]

    @write
    def take_back(self, tx: Transaction, task_ids: Sequence[str], *, ended: bool = False) -> None:
        tx.many(
            "requeue_external_job",
            [{"task_id": task_id, "ended": int(ended), "now": tx.now} for task_id in task_ids],
        )
        tx.many("delete_external_job", [{"task_id": task_id} for task_id in task_ids])
