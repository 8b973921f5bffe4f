"""The environments of the programs of others."""

from pathlib import Path

import pytest

from tests.system.interop import environment
from tests.system.interop.serving import of_others


@pytest.fixture
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "FOLDER", tmp_path / "interop")
    monkeypatch.setattr(environment, "failures", {})
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("nothing_installed")
def test_without_npm_a_test_is_skipped_with_a_word_on_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="npm is not installed: `make services`"):
        of_others(environment.conformance)


@pytest.mark.usefixtures("nothing_installed")
def test_without_npm_a_test_fails_under_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="npm is not installed"):
        of_others(environment.conformance)


@pytest.mark.usefixtures("nothing_installed")
def test_what_could_not_be_installed_is_not_tried_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[list[str]] = []

    def fail(command: list[str], **options: object) -> None:
        tries.append(command)
        raise environment.Unavailable("no network")

    monkeypatch.setattr(environment, "run", fail)
    for _ in range(3):
        with pytest.raises(environment.Unavailable, match="no network"):
            environment.python("mcp1")
    assert len(tries) == 1


def test_an_environment_is_made_anew_when_what_it_is_to_hold_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[str, ...]] = []
    monkeypatch.setattr(environment, "FOLDER", tmp_path)

    def run(command: list[str], **options: object) -> None:
        if "venv" in command:
            (tmp_path / "mcp1").mkdir()
        else:
            made.append(environment.PYTHON["mcp1"])

    monkeypatch.setattr(environment, "run", run)
    for requirement in ("mcp==1.29.*", "mcp==1.30.*", "mcp==1.30.*"):
        monkeypatch.setitem(environment.PYTHON, "mcp1", (requirement,))
        environment.python("mcp1")
    assert made == [("mcp==1.29.*",), ("mcp==1.30.*",)]
