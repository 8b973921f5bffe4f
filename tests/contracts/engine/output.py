"""Output of a tool: its log, progress and artifacts."""

from __future__ import annotations

import hashlib
import stat

from backburner.core.lifecycle import State
from tests.contracts.engine.base import EngineTests, Work
from tests.contracts.engine_tools import MAX_LOG_BYTES


class Output(EngineTests):
    def test_everything_that_is_said_is_logged_in_order(self, work: Work) -> None:
        task = work.run("talk")
        assert task.state is State.SUCCEEDED, task.error
        lines = work.store.logs(task.task_id)
        assert [line.seq for line in lines] == list(range(1, len(lines) + 1))
        said = [(line.stream, line.level, line.message) for line in lines if line.stream != "stderr"]
        assert said == [
            ("stdout", "info", "printed"),
            ("stdout", "info", "written"),
            ("log", "warning", "logged 1"),
            ("stdout", "info", "from a child"),
            ("log", "error", "noted"),
            ("stdout", "info", "from C"),
            ("log", "info", "in between"),
            ("stdout", "info", "no newline yet"),
            ("stdout", "info", "the end"),
        ]
        on_stderr = [(line.level, line.message) for line in lines if line.stream == "stderr"]
        assert on_stderr == [("warning", "to stderr")]

    def test_each_line_is_logged_for_the_task_that_said_it(self, work: Work) -> None:
        """Also when tasks follow each other quickly in one warm runner."""
        ids = [work.submit("say", {"queue": "one_by_one"}, words=f"word {n}") for n in range(50)]
        for number, task_id in enumerate(ids):
            work.end(task_id)
            assert work.lines(task_id) == [f"word {number}"]

    def test_threads_and_forked_children_are_heard(self, work: Work) -> None:
        task = work.run("threads", count=20)
        assert sorted(work.lines(task.task_id)) == sorted(f"thread {number}" for number in range(20))
        task = work.run("fork_and_log")
        assert work.lines(task.task_id) == ["parent", "child", "parent again"]

    def test_a_log_can_be_long_and_the_rest_is_dropped_with_a_note(self, work: Work) -> None:
        task = work.run("flood", lines=2000)
        assert work.lines(task.task_id) == [f"line {number}" for number in range(2000)]
        task = work.run("flood", lines=200_000)
        assert task.state is State.SUCCEEDED
        lines = work.lines(task.task_id)
        assert sum(map(len, lines)) <= MAX_LOG_BYTES
        assert lines[-1] == "The log is full; what follows is dropped."

    def test_garbage_is_logged_as_well_as_it_can_be(self, work: Work) -> None:
        task = work.run("write_garbage")
        assert task.state is State.SUCCEEDED
        lines = [line for line in work.store.logs(task.task_id) if line.stream != "stderr"]
        assert lines[-1].message == "after"
        assert lines[-2].stream == "log"
        assert "".join(line.message for line in work.store.logs(task.task_id) if line.stream == "stderr") == (
            "x" * 100_000
        )

    def test_the_latest_progress_is_kept(self, work: Work) -> None:
        progress = work.run("progress", steps=4).progress
        assert progress is not None
        assert (progress.percent, progress.step, progress.step_total) == (100.0, 4, 4)
        assert (progress.phase, progress.message, progress.context) == ("work", "step 4", {"best": 3})

    def test_progress_never_goes_back(self, work: Work) -> None:
        progress = work.run("go_back").progress
        assert progress is not None
        assert (progress.percent, progress.step, progress.message) == (80.0, 2, "a new round")

    def test_a_million_calls_of_progress_cost_no_more_than_a_few_seconds(self, work: Work) -> None:
        task = work.run("progress", steps=1_000_000)
        assert task.result < 5
        assert task.progress is not None
        assert task.progress.step == 1_000_000

    def test_odd_progress_stops_nobody(self, work: Work) -> None:
        task = work.run("odd_progress")
        assert (task.state, task.result) == (State.SUCCEEDED, "done"), task.error


ODD_NAMES = [
    "../../etc/passwd",
    "/etc/passwd",
    "..",
    ".hidden",
    "a/b/c.txt",
    "with space.txt",
    "naïve-名前.csv",
    "x" * 500,
    "semi;colon'\"$(id).txt",
    "line\nbreak",
]


class Artifacts(EngineTests):
    def test_files_are_kept_with_their_hashes_and_cannot_be_changed(self, work: Work) -> None:
        task = work.run("keep_files")
        assert task.state is State.SUCCEEDED, task.error
        artifacts = {artifact.name: artifact for artifact in work.service.result(task.task_id).artifacts}
        contents = {"abc.bin": b"abc", "plain.txt": b"plain", "trajectory.xyz": b"\0" * 3_000_000}
        assert {name: artifact.kind for name, artifact in artifacts.items()} == {
            "abc.bin": "blob",
            "plain.txt": "file",
            "trajectory.xyz": "trajectory",
        }
        for name, content in contents.items():
            artifact = artifacts[name]
            path = work.app.data_dir / "tasks" / artifact.path
            assert artifact.sha256 == hashlib.sha256(content).hexdigest() == task.result[name]
            assert artifact.size_bytes == len(content)
            assert path.read_bytes() == content
            assert stat.S_IMODE(path.stat().st_mode) == 0o400

    def test_no_name_leads_out_of_the_task_s_folder(self, work: Work) -> None:
        task = work.run("keep_odd_names", names=ODD_NAMES)
        assert task.state is State.SUCCEEDED, task.error
        tasks_folder = work.app.data_dir / "tasks"
        own = (tasks_folder / task.task_id).resolve()
        artifacts = work.store.artifacts(task.task_id)
        assert {artifact.name for artifact in artifacts} == set(ODD_NAMES)
        for artifact in artifacts:
            path = (tasks_folder / artifact.path).resolve()
            assert path.is_relative_to(own)
            assert path.read_bytes() == b"data"

    def test_a_file_that_is_not_there_is_the_tool_s_error(self, work: Work) -> None:
        error = work.run("keep_missing").error
        assert error is not None
        assert error.exception == "FileNotFoundError"
        assert "no/such/file" in error.message

    def test_what_was_kept_stays_when_the_tool_fails(self, work: Work) -> None:
        task = work.run("keep_then_fail")
        assert task.state is State.FAILED
        assert [artifact.name for artifact in work.store.artifacts(task.task_id)] == ["partial.txt"]
