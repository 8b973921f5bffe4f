"""What administrators and accidents do to the jobs of a real Slurm: no task is lost, and none fails for it.

The store is a PostgreSQL whose URL has a password, so jobs get it as they would on a cluster.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from backburner.core.lifecycle import State
from tests.contracts.engine.base import eventually
from tests.contracts.engine_tools import contract_app
from tests.integration.engine.local import Local, running
from tests.system.outside.slurm.cluster import SlurmCluster

pytestmark = pytest.mark.slow

#: Jobs of the queue `one_by_one` want the one licence that there is; those of `broken` end at once.
SLURM = {
    "arguments": {
        "one_by_one": "--licenses=single",
        "broken": "--partition=broken",
        "nowhere": "--partition=nope",
    },
    "setup": 'if [ "$SLURM_JOB_PARTITION" = broken ]; then echo "module: not found" >&2; exit 3; fi',
}


class OnSlurm(Local):
    """An app whose tasks are jobs."""

    def __init__(self, local: Local, cluster: SlurmCluster) -> None:
        super().__init__(local.app)
        self.cluster = cluster

    def job(self, task_id: str) -> str:
        """The job that the task has, or will have in a moment."""

        def known() -> str:
            return next((out.job for out in self.store.hand_outs("slurm") if out.task_id == task_id), "")

        return eventually(known)

    def begin(self, folder: Path, **options: str) -> str:
        """A task that runs until there is a file `go` in the folder."""
        task_id = self.submit("run_until", {**options}, folder=str(folder))
        self.until_state(task_id, State.RUNNING)
        return task_id

    def until_attempt(self, task_id: str, attempt: int) -> None:
        self.until(task_id, lambda task: task.attempt == attempt and task.state is State.RUNNING)


@pytest.fixture
def on_slurm(slurm: SlurmCluster, postgres_database: str, tmp_path: Path) -> Iterator[OnSlurm]:
    parts = urlsplit(postgres_database)
    app = contract_app(
        store=parts._replace(netloc=f"postgres:s3cret@127.0.0.1:{parts.port}").geturl(),
        data_dir=str(tmp_path / "data"),
        engine="slurm",
        queues={"cpu_standard": 2, "one_by_one": 1, "broken": 1, "nowhere": 1},
        slurm=SLURM,
        supervisor={"keeper_interval_s": 0.5, "drain_grace_s": 0.3},
    )
    with running(app) as local:
        yield OnSlurm(local, slurm)
    slurm.says("scancel", "--user=root")
    eventually(lambda: not slurm.says("squeue", "-h"))


@pytest.mark.whole
def test_a_partition_that_is_not_there_is_told_and_a_job_that_begins_nothing_fails_its_task_with_its_log(
    on_slurm: OnSlurm,
) -> None:
    broken = on_slurm.submit("add", {"queue": "broken"}, a=1)
    waiting = on_slurm.submit("add", {"queue": "nowhere"}, a=1)
    task = on_slurm.until(waiting, lambda task: task.waits_for is not None).task
    assert task.state is State.QUEUED
    assert "invalid partition specified: nope" in (task.waits_for or "")
    assert "slurm.arguments" in (task.waits_for or "")
    on_slurm.service.cancel(waiting)
    failed = on_slurm.service.wait(broken, 90).task  # three jobs, each of which is looked at after 5 s
    assert (failed.state, failed.error and failed.error.type) == (State.FAILED, "job_ended")
    assert "ended as FAILED" in (failed.error.message if failed.error else "")
    assert on_slurm.lines(broken) == ["module: not found"]


@pytest.mark.whole
def test_while_the_controller_is_away_tasks_go_on_and_new_ones_wait_for_it(
    on_slurm: OnSlurm, tmp_path: Path
) -> None:
    begun = on_slurm.begin(tmp_path)
    on_slurm.cluster.stop("slurmctld")
    try:
        new = on_slurm.submit("add", a=1)
        task = on_slurm.until(new, lambda task: task.waits_for is not None).task
        assert task.state is State.QUEUED
        assert "Unable to contact slurm controller" in (task.waits_for or "")
        (tmp_path / "go").touch()
        assert on_slurm.end(begun).result == 1
    finally:
        on_slurm.cluster.start_again("slurmctld")
    assert on_slurm.end(new).state is State.SUCCEEDED


def test_a_job_that_an_administrator_cancels_cancels_its_task_which_says_so(
    on_slurm: OnSlurm, tmp_path: Path
) -> None:
    runs = on_slurm.begin(tmp_path, queue="one_by_one")
    waits = on_slurm.submit("run_until", {"queue": "one_by_one"}, folder=str(tmp_path))
    jobs = {task_id: on_slurm.job(task_id) for task_id in (waits, runs)}
    for task_id, job in jobs.items():
        on_slurm.cluster.says("scancel", job)
        task = on_slurm.end(task_id)
        assert (task.state, task.error and task.error.type) == (State.CANCELLED, "cancelled")
        assert task.error is not None
        assert task.error.message == f"Cancelled: Slurm job {job} was cancelled in Slurm."
    *begun, given_back, ended = on_slurm.trail(runs)
    assert (begun, ended) == (["submit", "claim", "start"], "cancel")
    # Slurm signals each process of the job: the tool's may end before its supervisor hears of it.
    assert given_back in ("hand_back", "retry")
    assert on_slurm.trail(waits) == ["submit", "cancel"]


@pytest.mark.whole  # Slurm counts time by the minute
@pytest.mark.timeout(240)
def test_a_job_that_slurm_ends_for_its_time_fails_its_task_which_says_so(
    on_slurm: OnSlurm, tmp_path: Path
) -> None:
    task_id = on_slurm.begin(tmp_path)
    job = on_slurm.job(task_id)
    on_slurm.cluster.says("scontrol", "update", f"JobId={job}", "TimeLimit=1")
    task = on_slurm.service.wait(task_id, 180).task
    assert (task.state, task.error and task.error.type) == (State.FAILED, "job_timed_out")
    assert task.error is not None
    assert task.error.message == f"Slurm job {job} was ended by Slurm at its time limit."


@pytest.mark.whole
def test_jobs_that_are_requeued_or_preempted_are_no_failures(on_slurm: OnSlurm, tmp_path: Path) -> None:
    task_id = on_slurm.begin(tmp_path)
    on_slurm.cluster.says("scontrol", "requeue", on_slurm.job(task_id))
    on_slurm.until_attempt(task_id, 2)
    urgent = ["--partition=urgent", "--exclusive", "--output=/dev/null", "--wrap=sleep 1"]
    on_slurm.cluster.says("sbatch", *urgent)
    on_slurm.until_attempt(task_id, 3)
    (tmp_path / "go").touch()
    task = on_slurm.end(task_id)
    assert (task.state, task.result, task.failures) == (State.SUCCEEDED, 3, 0)
    assert on_slurm.trail(task_id).count("hand_back") == 2


@pytest.mark.whole
def test_a_node_s_daemon_that_is_killed_takes_no_task_along(on_slurm: OnSlurm, tmp_path: Path) -> None:
    begun = on_slurm.begin(tmp_path)
    on_slurm.cluster.kill("slurmd")
    try:
        new = on_slurm.submit("add", a=1)
        on_slurm.job(new)
        (tmp_path / "go").touch()
        assert on_slurm.end(begun).result == 1
    finally:
        on_slurm.cluster.start_again("slurmd")
    assert on_slurm.end(new).state is State.SUCCEEDED


def test_no_process_of_a_job_shows_the_store_s_password(on_slurm: OnSlurm, tmp_path: Path) -> None:
    task_id = on_slurm.begin(tmp_path)
    seen = subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    assert task_id in seen
    assert "s3cret" not in seen
    (tmp_path / "go").touch()
    assert on_slurm.end(task_id).state is State.SUCCEEDED
