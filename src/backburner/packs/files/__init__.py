"""The files pack: slow tools for folder trees, vaults of notes, and documents (extra `files`).

`backburner serve backburner.packs.files` serves it; `files.add_to(bb)` adds its tools to another app.
"""

from __future__ import annotations

from typing import Any

from ...app import Backburner
from .monitor import wksm_monitor_sync
from .transform import estimate_batch, wksm_transform_batch
from .tree import estimate_files
from .vault import wksm_vault_index, wksm_vault_search

__all__ = [
    "add_to",
    "bb",
    "wksm_monitor_sync",
    "wksm_transform_batch",
    "wksm_vault_index",
    "wksm_vault_search",
]


def add_to(app: Backburner) -> None:
    """Add the tools of this pack to an app. Slow tools return a handle at once."""
    # Measured: a sync reads each file and writes a row for it, an index parses each.
    synced, indexed = estimate_files(20, 500e6), estimate_files(60, 3e6, ".md")
    slow: dict[str, Any] = {"answer": "handle", "idempotent": True}
    app.tool(title="Sync", estimate=synced, **slow)(wksm_monitor_sync)
    app.tool(title="Vault index", estimate=indexed, **slow)(wksm_vault_index)
    app.tool(title="Vault search", task="never", read_only=True, open_world=False)(wksm_vault_search)
    app.tool(title="Batch transform", estimate=estimate_batch, **slow)(wksm_transform_batch)


bb = Backburner("files")
add_to(bb)
