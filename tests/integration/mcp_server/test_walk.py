"""The files that a call, a cancel, a log line and a question pass, in all processes."""

from __future__ import annotations

from pathlib import Path

from tests.walks.walk import local_walks, named_on_page

MOST_FILES_OF_A_CALL = 22


async def test_the_walks_pass_the_files_that_the_page_names(tmp_path: Path, run_directory: str) -> None:
    walks = await local_walks(tmp_path)
    unnamed = {walk: missing for walk, files in walks.items() if (missing := files - named_on_page(walk))}
    assert unnamed == {}
    assert len(walks["call"]) <= MOST_FILES_OF_A_CALL
