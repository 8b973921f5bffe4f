"""The parts of an app, whoever asks for them first."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from backburner import Backburner

THREADS = 8


@pytest.mark.parametrize("part", ["store", "engine", "service"])
def test_threads_that_ask_for_a_part_at_the_same_moment_get_the_same_one(tmp_path: Path, part: str) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        for number in range(10):
            app = Backburner("parts", store=f"sqlite:///{tmp_path}/{number}.db")
            together = threading.Barrier(THREADS)

            def ask(app: Backburner = app, together: threading.Barrier = together) -> Any:
                together.wait()
                return getattr(app, part)

            got = [asked.result() for asked in [pool.submit(ask) for _ in range(THREADS)]]
            assert len(set(map(id, got))) == 1
            app.close()
