"""wksm_transform_batch: every format to every other, and no document that harms another."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from backburner import Backburner
from backburner.packs.files.conversion import FORMATS, SUFFIXES, convert
from tests.integration.packs.conftest import Run, finish, report

DOCUMENTS = {
    "markdown": "# Tea\n\nGreen *and* black.\n\n| kind | price |\n|---|---|\n| green | 3 |\n| black | 4 |\n",
    "html": "<h1>Tea</h1><script>alert(1)</script><table><tr><th>kind</th><th>price</th></tr>"
    "<tr><td>green</td><td>3</td></tr><tr><td>black</td><td>4</td></tr></table>",
    "csv": "kind,price\ngreen,3\nblack,4\n",
    "json": '[{"kind": "green", "price": 3}, {"kind": "black", "price": 4}]',
    "text": "kind,price\ngreen,3\nblack,4\n",
}
TABLE = [{"kind": "green", "price": "3"}, {"kind": "black", "price": "4"}]


@pytest.mark.parametrize(("source", "target"), list(itertools.permutations(FORMATS, 2)))
def test_every_format_becomes_every_other(source: str, target: str) -> None:
    converted = convert(DOCUMENTS[source], source, target)
    assert "green" in converted
    assert "black" in converted
    assert "alert" not in converted or target == "html"
    if target == "json":
        assert json.loads(converted) == TABLE
    if target == "csv":
        assert converted == DOCUMENTS["csv"]


@pytest.mark.parametrize(
    ("source", "from_format", "to_format", "expected"),
    [
        ("a *b*\n\n- c\n- d\n", "markdown", "html", "<p>a <em>b</em></p>"),
        ("<h2>Hi</h2><p>a <b>b</b> <a href='x'>c</a></p>", "html", "markdown", "## Hi\n\na **b** [c](x)\n"),
        ("# Title\n\nOne.\n\nTwo.\n", "markdown", "text", "Title\n\nOne.\n\nTwo.\n"),
        ("a < b\n\nc", "text", "html", "<p>a &lt; b</p>\n<p>c</p>"),
        ('{"a": {"b": 1}}', "json", "markdown", '```\n{\n  "a": {\n    "b": 1\n  }\n}\n'),
        ("a;b\n1;2\n", "csv", "json", '"a": "1"'),
        ('[[1, "x"], [null, [2]]]', "json", "csv", "1,x\n,[2]\n"),
        ("a,a\n1,2\n", "csv", "json", '[\n  [\n    "a",'),
    ],
)
def test_what_a_document_becomes(source: str, from_format: str, to_format: str, expected: str) -> None:
    assert expected in convert(source, from_format, to_format)


@pytest.mark.parametrize(
    ("source", "from_format", "reason"),
    [
        ("no table", "markdown", "there is no table in it"),
        ('{"a": 1}', "json", "not a table"),
        ("", "csv", "the table is empty"),
    ],
)
def test_what_has_no_table_does_not_become_one(source: str, from_format: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        convert(source, from_format, "csv" if from_format != "csv" else "json")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "documents"
    (folder / "more").mkdir(parents=True)
    for number in range(20):
        (folder / f"{number:02}.md").write_text(f"# Note {number}\n\ntext\n")
    (folder / "more/table.csv").write_text(DOCUMENTS["csv"])
    return folder


def test_a_folder_is_converted_beside_its_documents(bb: Backburner, run: Run, folder: Path) -> None:
    inputs = {"paths": [str(folder)], "to": "html"}
    task = finish(bb, bb.service.submit("wksm_transform_batch", inputs).task_id)
    assert task.error is None, task.error
    assert (task.result["files_processed"], task.result["files_updated"]) == (21, 21)
    assert "<h1>Note 7</h1>" in (folder / "07.html").read_text()
    assert "<td>green</td>" in (folder / "more/table.html").read_text()
    assert len(report(bb, task.task_id)["files"]) == 21
    assert task.progress is not None
    assert task.progress.message == "Processing 21 of 21 files..."


def test_another_folder_keeps_the_places_and_a_second_time_changes_nothing(run: Run, folder: Path) -> None:
    target = folder.parent / "converted"
    inputs = {"paths": [str(folder), str(folder / "00.md")], "to": "text", "folder": str(target)}
    assert run("wksm_transform_batch", **inputs)["files_updated"] == 21
    assert (target / "more/table.txt").is_file()
    again = run("wksm_transform_batch", **inputs)
    assert (again["files_updated"], again["unchanged"], again["files_skipped"]) == (0, 21, 21)


def test_what_is_there_already_is_kept_unless_it_may_be_overwritten(run: Run, folder: Path) -> None:
    (folder / "00.txt").write_text("mine")
    inputs = {"paths": [str(folder / "00.md")], "to": "text"}
    kept = run("wksm_transform_batch", **inputs)
    assert kept["problems"][0]["reason"] == "there is another 00.txt already"
    assert (folder / "00.txt").read_text() == "mine"
    assert run("wksm_transform_batch", **inputs, overwrite=True)["files_updated"] == 1
    assert (folder / "00.txt").read_text() == "Note 0\n\ntext\n"


def test_each_bad_document_is_reported_and_the_others_are_converted(run: Run, folder: Path) -> None:
    (folder / "bad.json").write_text("{")
    (folder / "deep.json").write_text("[" * 100_000)
    (folder / "binary.md").write_bytes(b"\xff\xfe\x00\xff")
    (folder / "picture.png").write_bytes(b"\x89PNG")
    (folder / "dup.md").write_text("one")
    (folder / "dup.csv").write_text("two,2")
    (folder / "folder.md").mkdir()
    (folder / "lost.md").symlink_to("nowhere")
    paths = [str(folder), str(folder / "picture.png"), str(folder / "absent.md"), str(folder / "dup.md")]
    result = run("wksm_transform_batch", paths=paths, to="html")
    reasons = {Path(problem["path"]).name: problem["reason"] for problem in result["problems"]}
    assert reasons.pop("bad.json").startswith("Expecting")
    assert "recursion" in reasons.pop("deep.json")
    assert reasons.pop("picture.png") == f"its ending is none of {', '.join(SUFFIXES)}"
    assert reasons.pop("dup.md").endswith("dup.csv has the same target")
    assert reasons == {
        "binary.md": "not UTF-8 text",
        "absent.md": "does not exist",
        "lost.md": "vanished during the scan",
    }
    assert result["files_updated"] == 22
    assert result["files_processed"] == 22 + 7
    assert not list(folder.rglob("*.part"))


def test_a_document_that_kills_its_converter_harms_nobody_else(run: Run, folder: Path) -> None:
    result = run("convert_with_a_killer", paths=[str(folder)], killer="05.md")
    (problem,) = result["problems"]
    assert problem["path"].endswith("05.md")
    assert "the converter crashed on it" in problem["reason"]
    assert result["files_updated"] == 20
