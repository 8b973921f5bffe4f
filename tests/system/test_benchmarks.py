"""The benchmarks run, and the guide shows what they found. What they find is never a test."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import report, targets

ROOT = Path(__file__).parents[2]


@pytest.mark.whole
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


@pytest.mark.whole
@pytest.mark.slow
def test_the_benchmark_of_engines_runs_beside_the_bare_queue(tmp_path: Path) -> None:
    contenders = (
        # To keep results in memory or on disk is the same to a program: each library does one of them.
        *(targets.bare("Dramatiq", "Redis", keeps) for keeps in ("nothing", "results")),
        *(targets.bare("Celery", "Redis", keeps) for keeps in ("nothing", "durable")),
        targets.own("celery", "Redis", "SQLite"),
        targets.own("local", "", "SQLite"),
    )
    small = {"BENCHMARK_TASKS": "20", "BENCHMARK_ROUNDS": "1", "BENCHMARK_ONLY": ";".join(contenders)}
    command = [sys.executable, "-m", "benchmarks", "engines", "--save", str(tmp_path / "found.json")]
    said = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **small}, capture_output=True, text=True, check=True
    )
    assert "bare: Celery Redis" in said.stdout
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["left_out"] == {}
    assert found["figures"].keys() == set(contenders)


@pytest.mark.whole
@pytest.mark.slow
def test_the_benchmark_of_agents_runs_behind_hosts_with_and_without_tasks(tmp_path: Path) -> None:
    small = {
        "BENCHMARK_SCALE": "600",
        "BENCHMARK_ONLY": "Backburner;plain tool",
        "BENCHMARK_HOSTS": "MCPJam;Cline",
    }
    command = [sys.executable, "-m", "benchmarks", "agents", "--save", str(tmp_path / "found.json")]
    for _ in range(2):  # a port that it found free may be another's by the time its server takes it
        environment = {**os.environ, **small}
        said = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if said.returncode == 0:
            break
    assert said.returncode == 0, said.stderr
    figures = json.loads((tmp_path / "found.json").read_text())["figures"]
    hosts = {f"{server} on {host}" for server in ("Backburner", "plain tool") for host in ("MCPJam", "Cline")}
    assert figures.keys() == {*hosts, targets.AGENTS}
    assert figures["Backburner on MCPJam"]["calls, 30 min"] == 1
    assert figures["plain tool on Cline"]["lost, 30 min"] == 1


@pytest.mark.parametrize("page", report.PAGES, ids=lambda page: page.name)
def test_a_page_shows_the_figures_that_are_kept(page: Path) -> None:
    text = page.read_text()
    assert text == report.filled_in(text)


def test_a_target_says_by_how_much_it_is_missed() -> None:
    figures = {"ours": {"tasks/s": 90.0, "CPU": 3.0}, "theirs": {"tasks/s": 100.0, "CPU": 2.0}}
    more = targets.Target("", "ours", "tasks/s", 1.2, at_least=True, peer="theirs")
    less = targets.Target("", "ours", "CPU", 1.2, at_least=False, peer="theirs")
    assert more.verdict(more.found(figures) or 0) == "missed by 25%"
    assert less.verdict(less.found(figures) or 0) == "missed by 25%"
    assert more.verdict(1.2) == less.verdict(1.2) == "reached"
    assert more.found({"ours": {"tasks/s": 90.0}}) is None
    none = targets.Target("", "ours", "lost", 0, at_least=False)
    assert [none.verdict(0.0), none.verdict(2.0)] == ["reached", "missed by 2"]
