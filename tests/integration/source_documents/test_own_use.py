"""The functions of `progress-and-completion.md`, as a program of its own uses them."""

import re
import runpy
from pathlib import Path

import pytest

from backburner.errors import CompletionFailed, NoClient, ReferenceNotFound, TokenNotFound
from backburner.mcp.completion import resolve_argument_reference

GUIDE = Path(__file__).parents[3] / "docs" / "explanation" / "clients.md"


def test_the_example_of_the_guide(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n([^`]*ProgressTokens[^`]*)```", GUIDE.read_text())
    example = tmp_path / "own.py"
    example.write_text(code)
    own = runpy.run_path(str(example))

    assert own["export"]("c") == {"formats": ["csv"], "owner": "alice"}
    assert own["copy"]("report.pdf") == "report.pdf copied"
    assert [params["percentage"] for params in own["client"].sent] == [50.0, 100.0]
    assert own["tokens"].list_active_tokens() == []

    with pytest.raises(ReferenceNotFound):
        resolve_argument_reference("$.missing", {}, {})
    codes = {error.code for error in (TokenNotFound, NoClient, ReferenceNotFound, CompletionFailed)}
    assert codes == {"token_not_found", "no_client_pid", "not_found", "completion_failed"}
