"""The files that a Celery task passes, in all processes."""

from __future__ import annotations

from pathlib import Path

from tests.services import RedisServer
from tests.walks.walk import celery_walk, named_on_page


async def test_a_celery_task_passes_the_files_that_the_page_names(
    tmp_path: Path, run_directory: str, redis_server: RedisServer
) -> None:
    walks = await celery_walk(tmp_path, redis_server.url)
    assert walks["celery"] - named_on_page("celery") == set()
