"""wksm_monitor_sync: what it finds, what it survives, and that it goes on after a crash."""

from __future__ import annotations

import os
import socket
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from backburner import Backburner, Task
from tests.integration.packs.conftest import Run, finish, kill_runner, report

CHANGES = ("added", "changed", "removed", "renamed")


def counts(result: dict[str, Any]) -> dict[str, int]:
    return {name: result[name] for name in CHANGES if result[name]}


def reasons(result: dict[str, Any]) -> dict[str, str]:
    return {problem["path"]: problem["reason"] for problem in result["problems"]}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    for number in range(30):
        file = root / f"folder{number % 3}" / "deep" / f"{number}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"file {number}")
    (root / "top.txt").write_text("top")
    return root


def test_the_first_sync_finds_every_file_and_the_second_nothing_new(run: Run, tree: Path) -> None:
    first = run("wksm_monitor_sync", path=str(tree))
    assert counts(first) == {"added": 31}
    assert (first["files_processed"], first["files_updated"], first["files_skipped"]) == (31, 31, 0)
    assert first["duration_seconds"] > 0
    second = run("wksm_monitor_sync", path=str(tree))
    assert counts(second) == {}
    assert (second["files_processed"], second["files_updated"], second["files_skipped"]) == (31, 0, 31)


def test_it_tells_added_changed_removed_and_renamed_apart(bb: Backburner, run: Run, tree: Path) -> None:
    run("wksm_monitor_sync", path=str(tree))
    (tree / "new.txt").write_text("new")
    (tree / "top.txt").write_text("another top")
    (tree / "folder0/deep/0.txt").unlink()
    (tree / "folder1/deep/1.txt").rename(tree / "moved.txt")
    (tree / "folder2").rename(tree / "folder3")
    task = finish(bb, bb.service.submit("wksm_monitor_sync", {"path": str(tree)}).task_id)
    assert counts(task.result) == {"added": 1, "changed": 1, "removed": 1, "renamed": 11}
    found = report(bb, task.task_id)["changes"]
    assert {"change": "renamed", "path": "moved.txt", "was": "folder1/deep/1.txt"} in found
    assert {"change": "removed", "path": "folder0/deep/0.txt"} in found
    assert counts(run("wksm_monitor_sync", path=str(tree))) == {}


def test_a_copy_that_replaced_its_original_is_a_rename(run: Run, tree: Path) -> None:
    run("wksm_monitor_sync", path=str(tree))
    (tree / "copy.txt").write_bytes((tree / "top.txt").read_bytes())
    (tree / "top.txt").unlink()
    assert counts(run("wksm_monitor_sync", path=str(tree))) == {"renamed": 1}


def test_a_file_that_was_only_touched_is_not_changed(run: Run, tree: Path) -> None:
    run("wksm_monitor_sync", path=str(tree))
    os.utime(tree / "top.txt", (1, 1))
    assert counts(run("wksm_monitor_sync", path=str(tree))) == {}


def test_without_recursion_only_the_top_is_synced_and_the_rest_is_kept(run: Run, tree: Path) -> None:
    assert counts(run("wksm_monitor_sync", path=str(tree), recursive=False)) == {"added": 1}
    assert counts(run("wksm_monitor_sync", path=str(tree))) == {"added": 30}
    (tree / "folder0/deep/0.txt").unlink()
    assert counts(run("wksm_monitor_sync", path=str(tree), recursive=False)) == {}
    assert counts(run("wksm_monitor_sync", path=str(tree))) == {"removed": 1}


def test_the_database_can_be_read_and_put_where_the_caller_likes(
    run: Run, tree: Path, tmp_path: Path
) -> None:
    chosen = tmp_path / "monitor.db"
    result = run("wksm_monitor_sync", path=str(tree), database=str(chosen))
    assert result["database"] == str(chosen)
    assert chosen.stat().st_mode & 0o777 == 0o600
    database = sqlite3.connect(chosen)
    assert database.execute("SELECT size FROM paths WHERE path = 'folder0/deep/0.txt'").fetchone() == (6,)
    database.close()


def test_a_single_file_is_synced_into_the_database_of_its_folder(run: Run, tree: Path) -> None:
    first = run("wksm_monitor_sync", path=str(tree / "top.txt"))
    assert (first["files_processed"], counts(first)) == (1, {"added": 1})
    assert counts(run("wksm_monitor_sync", path=str(tree))) == {"added": 30}
    (tree / "top.txt").write_text("another top")
    (tree / "new.txt").write_text("new")
    assert counts(run("wksm_monitor_sync", path=str(tree / "top.txt"))) == {"changed": 1}
    assert counts(run("wksm_monitor_sync", path=str(tree / "top.txt"))) == {}
    assert counts(run("wksm_monitor_sync", path=str(tree))) == {"added": 1}


def test_what_is_not_there_is_refused_clearly(bb: Backburner, tree: Path) -> None:
    task = finish(bb, bb.service.submit("wksm_monitor_sync", {"path": str(tree / "nowhere")}).task_id)
    assert task.error is not None
    assert "There is no file or folder" in task.error.message


def first_estimate(bb: Backburner, path: Path) -> float | None:
    task_id = bb.service.submit("wksm_monitor_sync", {"path": str(path)}).task_id
    return finish(bb, task_id).estimate_s


def test_the_first_estimate_comes_of_a_look_at_the_folder(new: Backburner, tmp_path: Path) -> None:
    """The document's rule, a second for each hundred files, would say 20 s."""
    for number in range(2_000):
        file = tmp_path / "many" / str(number % 20) / f"{number}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("small")
    assert 0.1 < (first_estimate(new, tmp_path / "many") or 0) < 10


def test_where_nothing_can_be_read_the_first_estimate_is_the_document_s(
    new: Backburner, tmp_path: Path
) -> None:
    (tmp_path / "pipes").mkdir()
    for number in range(40):
        os.mkfifo(tmp_path / "pipes" / str(number))
    assert first_estimate(new, tmp_path / "pipes") == pytest.approx(0.5)


# -- hostile trees


def test_odd_names_are_kept_and_shown_safely(bb: Backburner, run: Run, tree: Path) -> None:
    names = [b"with\nnewline", b"invalid \xff\xfe utf8", b"\x1b[31mred", "ünïcode".encode(), b"-rf", b"a\\b"]
    for name in names:
        Path(os.fsdecode(os.fsencode(tree) + b"/" + name)).write_bytes(name)
    odd = tree / os.fsdecode(b"folder\xff\n")
    odd.mkdir()
    (odd / "inside").write_text("inside")
    task = finish(bb, bb.service.submit("wksm_monitor_sync", {"path": str(tree)}).task_id)
    assert task.error is None
    assert counts(task.result) == {"added": 31 + len(names) + 1}
    shown = {change["path"] for change in report(bb, task.task_id)["changes"]}
    assert {"with\\nnewline", "invalid \\xff\\xfe utf8", "\\x1b[31mred", "folder\\xff\\n/inside"} <= shown
    assert counts(run("wksm_monitor_sync", path=str(tree))) == {}


def test_links_loops_sockets_pipes_and_devices_are_reported_and_not_opened(run: Run, tree: Path) -> None:
    (tree / "loop").symlink_to(tree)
    (tree / "folder0/up").symlink_to("..")
    (tree / "knot").symlink_to("knot")
    (tree / "nothing").symlink_to("not there")
    (tree / "link").symlink_to("top.txt")
    os.mkfifo(tree / "pipe")
    listener = socket.socket(socket.AF_UNIX)
    here = Path.cwd()
    os.chdir(tree)  # the name of a socket must be short
    listener.bind("socket")
    os.chdir(here)
    listener.close()
    expected = {
        "loop": "a loop of symbolic links",
        "folder0/up": "a loop of symbolic links",
        "knot": "a loop of symbolic links",
        "nothing": "a symbolic link to nothing",
        "link": "a symbolic link, not followed",
        "pipe": "a named pipe",
        "socket": "a socket",
    }
    if os.geteuid() == 0:
        os.mknod(tree / "device", 0o600 | 0o020000, os.makedev(1, 3))
        expected["device"] = "a character device"
    for added in (31, 0):  # they are reported each time
        result = run("wksm_monitor_sync", path=str(tree))
        assert reasons(result) == expected
        assert result["added"] == added
        assert result["files_processed"] == 31 + len(expected)


def test_what_may_not_be_read_is_reported_and_not_taken_for_removed(run: Run, tree: Path) -> None:
    assert run("sync_without_privileges", path=str(tree))["added"] == 31
    locked, listed_only = tree / "folder0", tree / "folder1" / "deep"
    (tree / "top.txt").write_text("changed")
    modes = ((locked, 0o000), (listed_only, 0o444), (tree / "top.txt", 0o000))
    for path, mode in modes:
        path.chmod(mode)
    try:
        result = run("sync_without_privileges", path=str(tree))
    finally:
        for path, _ in modes:
            path.chmod(0o700)
    assert counts(result) == {}
    assert set(reasons(result).values()) == {"no permission"}
    assert {"folder0/", "folder1/deep/1.txt", "top.txt"} <= reasons(result).keys()
    assert counts(run("sync_without_privileges", path=str(tree))) == {"changed": 1}


def test_a_file_of_ten_gigabytes_is_hashed_in_part_and_in_no_time(run: Run, tree: Path) -> None:
    huge = tree / "huge"
    with huge.open("wb") as file:
        file.truncate(10 << 30)
    result = run("wksm_monitor_sync", path=str(tree))
    assert (result["added"], result["hashed_in_part"]) == (32, 1)
    assert result["duration_seconds"] < 5
    with huge.open("r+b") as file:
        file.seek(5 << 30)
        file.write(b"new")  # where no sample is taken, the time tells
    assert counts(run("wksm_monitor_sync", path=str(tree))) == {"changed": 1}


def test_files_that_vanish_while_they_are_synced_are_reported(run: Run, tree: Path) -> None:
    vanish = ["top.txt", "folder0/deep/0.txt"]
    result = run("sync_while_files_vanish", path=str(tree), vanish=vanish)
    assert reasons(result) == dict.fromkeys(vanish, "vanished during the scan")
    assert counts(result) == {"added": 29}
    assert counts(run("wksm_monitor_sync", path=str(tree))) == {}


# -- interruptions


@pytest.fixture
def many_files(tree: Path) -> Path:
    many = tree / "many"
    many.mkdir()
    for number in range(20_000):
        (many / str(number)).write_bytes(str(number).encode())
    return tree


def begin(bb: Backburner, tree: Path) -> str:
    """Submit a sync and wait until it has begun to read files."""
    task_id = bb.service.submit("sync_to_a_halt", {"path": str(tree)}).task_id
    task = bb.service.wait(task_id, 30, until=lambda task: task.finished or is_reading(task)).task
    assert is_reading(task)
    return task_id


def is_reading(task: Task) -> bool:
    return task.state == "running" and task.progress is not None and task.progress.phase == "sync"


def test_a_killed_sync_goes_on_where_it_was(bb: Backburner, run: Run, many_files: Path) -> None:
    task_id = begin(bb, many_files)
    kill_runner(bb, task_id)
    task = finish(bb, task_id)
    assert task.error is None
    assert task.attempt == 2
    assert counts(task.result) == {"added": 20_031}
    assert counts(run("wksm_monitor_sync", path=str(many_files))) == {}


@pytest.mark.whole
def test_a_sync_can_be_cancelled_and_done_later(bb: Backburner, run: Run, many_files: Path) -> None:
    task_id = begin(bb, many_files)
    bb.service.cancel(task_id)
    assert finish(bb, task_id).state == "cancelled"
    run("wksm_monitor_sync", path=str(many_files))
    assert counts(run("wksm_monitor_sync", path=str(many_files))) == {}
