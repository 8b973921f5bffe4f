"""What a tool keeps."""

from __future__ import annotations

import hashlib
import stat

from ...lifecycle import State
from .base import EngineTests, Work

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
