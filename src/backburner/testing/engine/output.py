"""What a tool says while it runs: its log and its progress."""

from __future__ import annotations

from ...lifecycle import State
from ..engine_tools import MAX_LOG_BYTES
from .base import EngineTests, Work


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
