"""Tasks as jobs of a real Slurm: what is asked of it, what a job finds, and what is told of its end."""

import dataclasses
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from backburner.core.lifecycle import State
from backburner.core.task import Resources
from backburner.engines.external import PartialSubmit
from backburner.engines.slurm import make_queue
from backburner.errors import ConfigError, EngineError
from backburner.settings import Settings, SlurmSettings
from backburner.store.protocol import ExternalJob
from tests.contracts.engine.base import eventually
from tests.contracts.engine_tools import contract_app
from tests.integration.engine.local import Client
from tests.system.outside.slurm.cluster import SlurmCluster


class Jobs(Client):
    """A store and Slurm; the test dispatches."""

    def queue(self, **slurm: Any) -> Any:
        settings = dataclasses.replace(self.app.settings, slurm=SlurmSettings(**slurm))
        return make_queue(settings, ["cpu_standard", "one_by_one"], bytes)

    def dispatch(self, *task_ids: str, **slurm: Any) -> Mapping[str, str]:
        jobs: Mapping[str, str] = self.queue(**slurm).submit([self.store.get(each) for each in task_ids])
        return jobs

    def external(self, jobs: Mapping[str, str]) -> list[ExternalJob]:
        return [
            ExternalJob(task_id, "slurm", "cpu_standard", 1, job, 0, 0, State.QUEUED, waits=True)
            for task_id, job in jobs.items()
        ]


@pytest.fixture
def jobs(slurm: SlurmCluster, tmp_path: Path) -> Iterator[Jobs]:
    app = contract_app(store=f"sqlite:///{tmp_path}/tasks.db", data_dir=str(tmp_path))
    client = Jobs(app)
    yield client
    slurm.says("scancel", "--user=root")
    client.close()
    eventually(lambda: not slurm.says("squeue", "-h"))


def test_tasks_that_ask_for_the_same_are_one_array_and_others_a_job_each(
    slurm: SlurmCluster, jobs: Jobs
) -> None:
    alike = [jobs.submit("add", a=number) for number in range(3)]
    big = jobs.submit("add", {"resources": Resources(cpu=1.5, memory_mb=500, max_runtime_s=3600)}, a=9)
    named = jobs.dispatch(
        *(alike[0], big, *alike[1:]),
        arguments={
            "cpu_standard": "--partition=main --comment='by hand'",
            "gpu_small": "--partition=nowhere",
        },
    )
    array = named[alike[0]].partition("_")[0]
    assert [named[task_id] for task_id in alike] == [f"{array}_{index}" for index in range(3)]
    shown = slurm.says("scontrol", "show", "job", named[big])
    for part in (
        "NumCPUs=2",
        "MinMemoryNode=756M",
        "TimeLimit=01:05:00",
        "Partition=main",
        "Comment=by hand",
    ):
        assert part in shown, shown
    assert [jobs.end(task_id).result for task_id in (*alike, big)] == [
        {"sum": each} for each in (2, 3, 4, 11)
    ]


def test_the_store_s_password_is_in_a_file_for_its_owner_and_on_no_command_line(
    slurm: SlurmCluster, jobs: Jobs, tmp_path: Path
) -> None:
    task_id = jobs.submit("add", a=1)
    jobs.app.settings = dataclasses.replace(jobs.app.settings, store="postgresql://lab:s3cret@db/tasks")
    job = jobs.dispatch(task_id, arguments={"*": "--hold"})[task_id]
    script = slurm.says("scontrol", "write", "batch_script", job, "-")
    assert task_id in script
    assert "s3cret" not in script
    file = tmp_path / "slurm" / "environment.sh"
    assert f". {file}" in script
    assert "postgresql://lab:s3cret@db/tasks" in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"arguments": {"*": "--partition=nope"}}, "slurm.arguments"),
        ({"arguments": {"cpu_standard": "--gres=gpu:1"}}, "slurm.arguments"),
        ({"arguments": {"*": "--mem=9999999"}}, "cpu and memory"),
        ({"arguments": {"*": "--what"}}, "unrecognized option '--what'"),
    ],
)
def test_what_slurm_does_not_take_is_told_with_what_to_change(
    jobs: Jobs, given: dict[str, Any], told: str
) -> None:
    task_id = jobs.submit("add", a=1)
    with pytest.raises(EngineError) as refusal:
        jobs.dispatch(task_id, **given)
    assert told in str(refusal.value)


@pytest.mark.parametrize("text", ["--time=5", "--qos=long -t 5", "-o/dev/null", "--array 1-9", "--comment='"])
def test_arguments_that_would_get_in_the_engine_s_way_are_refused(text: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        SlurmSettings(arguments={"cpu_heavy": text})
    assert refusal.value.details["setting"] == "slurm.arguments.cpu_heavy"


def test_a_task_that_slurm_refuses_holds_up_no_other(jobs: Jobs) -> None:
    impossible = jobs.submit("add", {"resources": Resources(memory_mb=9_000_000)}, a=1)
    possible = jobs.submit("add", a=1)
    with pytest.raises(PartialSubmit) as refusal:
        jobs.dispatch(impossible, possible)
    assert set(refusal.value.jobs) == {possible}
    assert jobs.end(possible).state is State.SUCCEEDED


def test_a_job_that_did_not_begin_its_task_is_told_with_its_last_words(jobs: Jobs) -> None:
    task_id = jobs.submit("add", a=1)
    queue = jobs.queue(setup="echo 'module: command not found' >&2; exit 3")
    named = queue.submit([jobs.store.get(task_id)])
    external = jobs.external(named)
    sighting = eventually(
        lambda: next((s for s in queue.status(external).values() if s.state == "ended"), None)
    )
    assert sighting.reason.endswith("ended as FAILED")
    assert sighting.output == "module: command not found"
    assert jobs.store.get(task_id).state is State.QUEUED
    (output,) = (Path(jobs.app.settings.data_dir) / "slurm").glob("*.out")
    os.utime(output, (0, 0))
    jobs.dispatch(task_id)
    assert not output.exists()


def test_one_look_tells_jobs_that_wait_from_those_that_somebody_cancelled(
    slurm: SlurmCluster, jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task_ids = [jobs.submit("sleep", seconds=600) for _ in range(3)]
    named = {**jobs.dispatch(*task_ids[:2], arguments={"*": "--hold"})}
    named |= jobs.dispatch(task_ids[2], arguments={"*": "--hold"})
    slurm.says("scancel", named[task_ids[1]], named[task_ids[2]])
    calls = count_calls("squeue", tmp_path)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
        seen = jobs.queue().status(jobs.external(named))
    assert [seen[task_id].state for task_id in task_ids] == ["active", "ended", "cancelled"]
    assert "JobHeldUser" in seen[task_ids[0]].reason
    assert calls() == 1
    # And what is needed no more is cancelled, also when it is over, or nobody knows it.
    queue, all_of_them = jobs.queue(), jobs.external({**named, "tsk_0": "99999", "tsk_1": "99998_7"})
    queue.cancel(all_of_them)
    queue.cancel(all_of_them)
    assert queue.status(jobs.external(named))[task_ids[0]].state == "ended"


def count_calls(command: str, folder: Path) -> Callable[[], int]:
    """Have a folder of Slurm's commands in which this one notes its calls; how many there were."""
    bin_dir, notes = folder / "bin", folder / "calls"
    bin_dir.mkdir()
    for name in ("sbatch", "squeue", "sacct", "scancel"):
        real = shutil.which(name)
        note = f"echo called >> {notes}\n" if name == command else ""
        (bin_dir / name).write_text(f'#!/bin/sh\n{note}exec {real} "$@"\n')
        (bin_dir / name).chmod(0o755)
    return lambda: len(notes.read_text().splitlines())


def test_the_settings_of_a_login_node_that_the_page_shows_are_valid(tmp_path: Path) -> None:
    page = Path(__file__).parents[4] / "docs" / "guides" / "deploy-slurm.md"
    (shown,) = re.findall(r"```toml\n(.*?)```", page.read_text(), re.DOTALL)
    (tmp_path / "backburner.toml").write_text(shown)
    settings = Settings.load("lab", None, {}, tmp_path / "backburner.toml")
    assert settings.outside_engines == ["slurm"]
    assert "--partition=gpu" in settings.slurm.arguments_of("gpu_small")
    assert "--partition=batch" in settings.slurm.arguments_of("cpu_small")
