"""The guide to testing: its examples are tests that pass, in a project that knows nothing of this one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deployment import foreign_environment

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "testing.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)


def run_tests(folder: Path) -> str:
    """What pytest says of the tests there, which pass."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder,
        env=foreign_environment(),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_of_the_guide_is_a_test_that_passes(tmp_path: Path, number: int) -> None:
    (tmp_path / "test_example.py").write_text(EXAMPLES[number])
    said = run_tests(tmp_path)
    assert f"{EXAMPLES[number].count('def test_')} passed" in said
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".db"] == []


def test_a_project_without_tasks_pays_nothing_for_the_fixture(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(
        "import sys\ndef test_other():\n    assert 'mcp' not in sys.modules\n"
        "    assert 'backburner.app' not in sys.modules\n"
    )
    run_tests(tmp_path)
