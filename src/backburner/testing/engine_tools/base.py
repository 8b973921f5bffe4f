"""The app that has the tools, and copies of it with other settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...app import Backburner

NAME = "engine_contract"
QUEUES = {"cpu_standard": 2, "one_by_one": 1}
CANCEL_GRACE_S = 1.5
MAX_RESULT_BYTES = 10_000
MAX_LOG_BYTES = 2_000_000

app = Backburner(NAME, queues=QUEUES)


def contract_app(
    *, supervisor: Mapping[str, Any] | None = None, limits: Mapping[str, Any] | None = None, **settings: Any
) -> Backburner:
    """An app with the suite's tools and these settings, which runners find in this package."""
    given = {
        "queues": QUEUES,
        "supervisor": {"cancel_grace_s": CANCEL_GRACE_S, **(supervisor or {})},
        "limits": {"max_result_bytes": MAX_RESULT_BYTES, "max_log_bytes": MAX_LOG_BYTES, **(limits or {})},
        **settings,
    }
    copy = Backburner(NAME, **given)
    copy.target = app.target
    for spec in app.tools:
        copy.add_tool(spec)
    return copy
