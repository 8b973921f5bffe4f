"""SQLite's locks belong to the process: no connection of ours may give away those of another."""

import subprocess
import sys
from pathlib import Path

from backburner.store import open_store
from backburner.testing import FakeClock
from tests.contracts.store.base import Work


def test_a_second_store_on_the_same_file_leaves_the_first_one_its_locks(tmp_path: Path) -> None:
    """Else a process that leaves takes itself for the last one, and removes the log that we write to."""
    url = f"sqlite:///{tmp_path}/tasks.db"
    first = open_store(url)
    second = open_store(url)
    second.close()
    leave = "import sys; from backburner.store import open_store; open_store(sys.argv[1]).close()"
    subprocess.run([sys.executable, "-c", leave, url], check=True)
    task_id = Work(first, FakeClock()).queued()
    look = "import sys; from backburner.store import open_store; open_store(sys.argv[1]).get(sys.argv[2])"
    subprocess.run([sys.executable, "-c", look, url, task_id], check=True)
    first.close()
