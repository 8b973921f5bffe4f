"""A large store is moved whole."""

import json
import os
from pathlib import Path

import psycopg
import pytest

from backburner.store import open_store
from tests.integration.moving.stores import contents, make_many, move

#: The figures of 100,000 are in docs/guides/deploy-postgresql.md.
COUNT = int(os.environ.get("BACKBURNER_MOVED_TASKS", "10000"))


@pytest.mark.whole
@pytest.mark.slow
def test_every_row_of_many_tasks_arrives_by_count_and_by_checksum(
    tmp_path: Path, postgres_database: str
) -> None:
    path = tmp_path / "tasks.db"
    make_many(path, COUNT)
    said = json.loads(move(f"sqlite:///{path}", postgres_database, "--data-dir", str(tmp_path), "--json"))
    assert said["tables"]["tasks"]["rows"] == COUNT
    assert said["tables"]["task_events"]["rows"] == 3 * COUNT
    assert contents(path, postgres_database) == contents(path, f"sqlite:///{path}")
    with psycopg.connect(postgres_database) as connection:
        waiting = connection.execute("SELECT sum(queued) FROM queue_depth").fetchone()
    assert waiting == (COUNT // 10,)
    store = open_store(postgres_database)
    assert sum(depth.queued for depth in store.queue_depths()) == COUNT // 10
    store.close()
