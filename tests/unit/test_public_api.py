"""The names that users may import. Every other module and name is internal."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PUBLIC = {
    "backburner": """
        Answer Artifact Backburner BackburnerError LeaseLost MCPResult Progress ProtocolError Queue Resources
        Retry Settings State Task TaskCancelled TaskContext TaskError TaskService TaskStatus Tasks ToolSpec
        open_store
    """,
    "backburner.client": """
        AsyncTask BackburnerClient Bridge ConnectionLost HandleFile HostPoller LogLine NotAuthorized
        NotOffered RemoteArtifact ResultLost TaskDisplay TaskHandle TaskProgress TaskWasCancelled
        TasksExtension Update
    """,
    "backburner.testing": "FakeClock inline",
    "backburner.packs": "files science",
    "backburner.packs.files": """
        add_to bb wksm_monitor_sync wksm_transform_batch wksm_vault_index wksm_vault_search
    """,
    "backburner.packs.science": "add_to bb run_geometry_optimization",
}

APP = "add_tool attach close http_app mcp_server name run service settings start store tool tools"
SERVICE = "answer_input artifacts cancel close delete list logs result retry status submit wait"

#: Documented helpers of servers that speak a dialect themselves (docs/explanation/clients.md).
HELPERS = {"backburner.mcp.completion", "backburner.mcp.progress"}


@pytest.mark.parametrize("module", PUBLIC)
def test_a_public_module_exports_what_is_listed(module: str) -> None:
    imported = importlib.import_module(module)
    assert sorted(imported.__all__) == PUBLIC[module].split()
    if module == "backburner.packs":  # submodules, imported on demand because each needs an extra
        return
    missing = [name for name in imported.__all__ if not hasattr(imported, name)]
    assert missing == []


def test_an_app_and_its_service_have_their_public_members() -> None:
    from backburner import Backburner, TaskService

    app = Backburner("public_api")
    assert [name for name in APP.split() if not hasattr(Backburner, name) and name not in vars(app)] == []
    assert [name for name in SERVICE.split() if not hasattr(TaskService, name)] == []


def test_the_docs_import_public_modules_only() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    imported = {
        module
        for page in pages
        for module in re.findall(r"^\s*(?:from|import) (backburner[\w.]*)", page.read_text(), re.MULTILINE)
    }
    assert imported - PUBLIC.keys() - HELPERS == set()
