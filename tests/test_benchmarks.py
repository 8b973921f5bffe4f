"""The benchmarks run, and the guide shows what they found. What they find is never a test."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import report, targets

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_benchmark_beside_peers_runs_and_keeps_what_it_found(tmp_path: Path) -> None:
    contenders = (targets.BARE, targets.SQLITE, targets.POOL)
    small = {"BENCHMARK_TASKS": "20", "BENCHMARK_ROUNDS": "1", "BENCHMARK_ONLY": ";".join(contenders)}
    command = [sys.executable, "-m", "benchmarks", "peers", "--save", str(tmp_path / "found.json")]
    said = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **small}, capture_output=True, text=True, check=True
    )
    assert "dispatch p50, random gaps" in said.stdout
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["left_out"] == {}
    assert found["figures"].keys() == set(contenders)
    for figures in found["figures"].values():
        assert all(figures[name] > 0 for name in (targets.RATE, targets.RATE_16, targets.DISPATCH))


def test_the_guide_shows_the_figures_that_are_kept() -> None:
    text = report.GUIDE.read_text()
    assert text == report.guide(text)


def test_a_target_says_by_how_much_it_is_missed() -> None:
    figures = {"ours": {"tasks/s": 90.0, "CPU": 3.0}, "theirs": {"tasks/s": 100.0, "CPU": 2.0}}
    more = targets.Target("", "ours", "tasks/s", 1.2, at_least=True, peer="theirs")
    less = targets.Target("", "ours", "CPU", 1.2, at_least=False, peer="theirs")
    assert more.verdict(more.found(figures) or 0) == "missed by 25%"
    assert less.verdict(less.found(figures) or 0) == "missed by 25%"
    assert more.verdict(1.2) == less.verdict(1.2) == "reached"
    assert more.found({"ours": {"tasks/s": 90.0}}) is None
