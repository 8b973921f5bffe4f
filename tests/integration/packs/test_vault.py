"""wksm_vault_index and wksm_vault_search: what a vault of notes says, and finding it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backburner import Backburner
from backburner.packs.files.vault import Link, read_note
from tests.integration.packs.conftest import Run, finish, report

NOTES = {
    "Home.md": (
        "# Welcome home\n\nSee [[Projects/Kiln|the kiln]], [[garden]], [[Missing]] and ![[plan.pdf]] #start\n"
    ),
    "Projects/Kiln.md": (
        "---\ntitle: The kiln\ntags: [clay, heat/high]\nbuilt: 2024-05-01\n---\n"
        "## Firing\n\nBisque firing goes to 1000 degrees. Back to [home](../Home.md#top).\n\n"
        "`[[not a link]]`\n\n```\n[[nor this]] #nor-this\n```\n"
    ),
    "Projects/Garden.md": "Tomatoes and basil. #green/veg #2024 [[#Below]]\n",
    "deep/er/Garden.md": "Another garden, further down.\n",
    ".obsidian/hidden.md": "[[Nobody looks here]]",
    "plan.pdf": "%PDF",
}


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    root = tmp_path / "vault"
    for name, text in NOTES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_a_note_is_read_as_markdown_and_not_line_by_line() -> None:
    note = read_note(NOTES["Projects/Kiln.md"])
    assert note.title == "The kiln"
    assert note.headings == [(2, "Firing", 6)]
    assert note.tags == {"clay", "heat/high"}
    assert note.links == [Link("../Home.md", "top", 8, relative=True)]
    assert note.front_matter["built"] == "2024-05-01"


@pytest.mark.parametrize(
    ("text", "links"),
    [
        ("[[a]] [[b|B]] [[c#d]]", ["a", "b", "c"]),
        ("[[under_score_name]] **[[bold]]**", ["under_score_name", "bold"]),
        ("| x |\n|---|\n| [[cell\\|text]] |", ["cell"]),
        (r"`[[code]]` \[[escaped]] [[]] [[ ]] [[new\nline".replace("\\n", "\n"), []),
        ("[web](https://x.org/a.md) [note](b%20c.md)", ["b c.md"]),
    ],
)
def test_links_are_found_where_they_are_links(text: str, links: list[str]) -> None:
    assert [link.target for link in read_note(text).links] == links


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("#one and #two/three.", {"one", "two/three"}),
        ("# Heading\n#4 #2024 #4k a#b https://x.org/#c &#39;", {"4k"}),
        ("---\ntags: a, b c\n---\n", {"a", "b", "c"}),
        ("---\ntags:\n- A\n- 7\n---\n", {"a", "7"}),
    ],
)
def test_tags_are_found_in_text_and_front_matter(text: str, tags: set[str]) -> None:
    assert read_note(text).tags == tags


@pytest.mark.parametrize(
    ("front", "problem"),
    [
        ("a: [", "the front matter is not valid"),
        ("- a list", "not a list of names and values"),
        ("a: &a [1]\nb: [*a, *a]", "it has aliases"),
        ('title: "\\ud800\\0"\nn: .nan', "not valid"),
    ],
)
def test_bad_front_matter_is_a_problem_and_the_note_is_read_all_the_same(front: str, problem: str) -> None:
    note = read_note(f"---\n{front}\n---\n# Title\n")
    assert problem in note.problem
    assert note.title == "Title"


def test_a_vault_is_indexed_with_its_links_and_broken_links(bb: Backburner, vault: Path) -> None:
    task = finish(bb, bb.service.submit("wksm_vault_index", {"path": str(vault)}).task_id)
    assert task.error is None, task.error
    result = task.result
    assert (result["notes"], result["files_updated"], result["added"]) == (4, 4, 4)
    assert result["broken_links"] == [{"path": "Home.md", "line": 3, "target": "Missing"}]
    assert report(bb, task.task_id)["broken_links"] == result["broken_links"]


def test_search_finds_the_best_note_with_its_backlinks(run: Run, vault: Path) -> None:
    run("wksm_vault_index", path=str(vault))
    (kiln,) = search(run, vault, "firing")
    assert (kiln["path"], kiln["title"]) == ("Projects/Kiln.md", "The kiln")
    assert "**firing**" in kiln["snippet"]
    assert (kiln["tags"], kiln["backlinks"]) == (["clay", "heat/high"], ["Home.md"])
    assert [hit["path"] for hit in search(run, vault, "garden", limit=1)] == ["deep/er/Garden.md"]
    (garden,) = search(run, vault, "basil")
    assert garden["backlinks"] == ["Home.md"]  # of two gardens, the one nearer to the top
    assert search(run, vault, "kiln OR basil", tag="#heat")[0]["path"] == "Projects/Kiln.md"
    assert search(run, vault, "degrees", tag="green") == []


@pytest.mark.parametrize("query", ['"', "a AND", "*", "(", "title:", "NEAR(", "", "'; DROP TABLE notes; --"])
def test_any_query_is_answered(run: Run, vault: Path, query: str) -> None:
    run("wksm_vault_index", path=str(vault))
    assert search(run, vault, query) == []


def test_only_what_changed_is_read_again(run: Run, vault: Path) -> None:
    run("wksm_vault_index", path=str(vault))
    again = run("wksm_vault_index", path=str(vault))
    assert (again["files_updated"], again["files_skipped"]) == (0, 4)
    (vault / "Missing.md").write_text("Here it is.")
    (vault / "Home.md").write_text("# Home\n[[Missing]] sweet home")
    (vault / "Projects/Kiln.md").unlink()
    third = run("wksm_vault_index", path=str(vault))
    assert {key: third[key] for key in ("added", "changed", "removed", "broken_links_total")} == {
        "added": 1,
        "changed": 1,
        "removed": 1,
        "broken_links_total": 0,
    }
    assert search(run, vault, "firing") == []
    assert search(run, vault, "sweet")[0]["links"] == ["Missing"]


def test_a_hostile_vault_is_indexed_as_far_as_it_goes(run: Run, vault: Path) -> None:
    (vault / "binary.md").write_bytes(b"\xff\xfe\x00")
    (vault / "broken.md").write_text("---\na: [\n---\nstill readable")
    (vault / "gone.md").symlink_to("nowhere")
    (vault / "folder.md").mkdir()
    (vault / "deep.md").write_text("> " * 20_000 + "[" * 20_000 + "text")
    (vault / "new\nline.md").write_text("a new line in its name")
    with (vault / "huge.md").open("wb") as file:
        file.truncate(1 << 32)
    result = run("wksm_vault_index", path=str(vault))
    reasons = {problem["path"]: problem["reason"] for problem in result["problems"]}
    assert reasons.keys() == {"binary.md", "broken.md", "gone.md", "huge.md"}
    assert reasons["binary.md"] == "not UTF-8 text"
    assert search(run, vault, "readable")[0]["path"] == "broken.md"
    assert search(run, vault, '"new line"')[0]["path"] == "new\\nline.md"


def test_a_vault_that_is_not_indexed_cannot_be_searched(bb: Backburner, vault: Path) -> None:
    task_id = bb.service.submit("wksm_vault_search", {"query": "x", "path": str(vault)}).task_id
    error = finish(bb, task_id).error
    assert error is not None
    assert "call wksm_vault_index first" in error.message


def search(run: Run, vault: Path, query: str, **options: Any) -> list[dict[str, Any]]:
    hits: list[dict[str, Any]] = run("wksm_vault_search", query=query, path=str(vault), **options)["hits"]
    return hits
