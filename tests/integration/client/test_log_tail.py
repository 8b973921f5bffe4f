"""A log that is rotated, truncated and torn is read line by line, each line once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backburner.mcp.dialects.task_id.client import LogTail


def lines_of(tail: LogTail) -> list[bytes]:
    found: list[bytes] = []
    while True:
        lines, more = tail.lines()
        found += lines
        if not more:
            return found


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


@pytest.fixture
def tail(path: Path) -> Iterator[LogTail]:
    made = LogTail(path)
    yield made
    made.close()


def test_a_log_that_is_not_there_yet_is_empty(path: Path, tail: LogTail) -> None:
    assert lines_of(tail) == []
    append(path, b"one\n")
    assert lines_of(tail) == [b"one"]
    assert lines_of(tail) == []


def test_what_was_written_before_a_rotation_is_read_before_what_comes_after(
    path: Path, tail: LogTail
) -> None:
    append(path, b"one\n")
    assert lines_of(tail) == [b"one"]
    append(path, b"two\n")
    path.rename(path.with_name("log.jsonl.1"))
    append(path, b"three\n")
    append(path.with_name("log.jsonl.1"), b"late\n")
    assert lines_of(tail) == [b"two", b"late", b"three"]


def test_a_log_that_was_moved_away_is_followed_when_its_successor_is_there(path: Path, tail: LogTail) -> None:
    append(path, b"one\n")
    assert lines_of(tail) == [b"one"]
    path.rename(path.with_name("log.jsonl.1"))
    assert lines_of(tail) == []
    append(path, b"two\n")
    assert lines_of(tail) == [b"two"]


@pytest.mark.parametrize("after", [b"b\n", b"a line that is longer than all that was there before\n"])
def test_a_truncated_log_is_read_from_its_beginning(path: Path, tail: LogTail, after: bytes) -> None:
    append(path, b"one\ntwo\nthree\n")
    assert len(lines_of(tail)) == 3
    path.write_bytes(after)
    assert lines_of(tail) == [after[:-1]]


def test_reading_goes_on_where_it_ended_in_another_process(path: Path, tail: LogTail) -> None:
    append(path, b"one\ntor")
    assert lines_of(tail) == [b"one"]
    position = tail.position
    append(path, b"n\n")
    path.rename(path.with_name("log.jsonl.1"))
    append(path, b"three\n")
    again = LogTail(path, position)
    assert lines_of(again) == [b"torn", b"three"]
    again.close()


def test_a_log_that_was_replaced_meanwhile_is_read_from_its_beginning(path: Path, tail: LogTail) -> None:
    append(path, b"one\ntwo\n")
    lines_of(tail)
    position = tail.position
    path.write_bytes(b"another log, and longer\nthan the first\n")
    again = LogTail(path, position)
    assert lines_of(again) == [b"another log, and longer", b"than the first"]
    again.close()


def test_what_is_there_already_can_be_passed_over(path: Path, tail: LogTail) -> None:
    append(path, b"x" * 5_000_000 + b"\n")
    tail.skip_to_end()
    append(path, b"new\n")
    assert lines_of(tail) == [b"new"]
    assert tail.bytes_read < 1000


_TEXT = st.text("ab\n", max_size=20).map(str.encode)


@settings(max_examples=100)
@given(st.lists(st.tuples(st.sampled_from(["write", "write", "rotate", "resume", "read"]), _TEXT)))
def test_each_line_comes_once_and_in_order_whatever_happens_in_between(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, bytes]]
) -> None:
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    tail, written, found, rotations = LogTail(path), b"", [], 0
    for step, data in steps:
        if step == "write":
            append(path, data)
            written += data
        elif step == "rotate" and path.exists() and (not written or written.endswith(b"\n")):
            rotations += 1
            found += lines_of(tail)
            path.rename(path.with_name(f"log.jsonl.{rotations}"))
        elif step == "resume":
            position = tail.position
            tail.close()
            tail = LogTail(path, position)
        else:
            found += lines_of(tail)
    found += lines_of(tail)
    tail.close()
    assert found == written.split(b"\n")[:-1]
