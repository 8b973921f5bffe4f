"""The app that has the tools, and copies of it with other settings."""

from __future__ import annotations

from typing import Any

from ...app import Backburner

NAME = "engine_contract"
QUEUES = {"cpu_standard": 2, "one_by_one": 1}
CANCEL_GRACE_S = 0.5
MAX_RESULT_BYTES = 10_000
MAX_LOG_BYTES = 2_000_000

app = Backburner(NAME, queues=QUEUES)


def contract_app(**settings: Any) -> Backburner:
    """An app with the suite's tools and these settings, which runners find in this package."""
    given = {
        "queues": QUEUES,
        "cancel_grace_s": CANCEL_GRACE_S,
        "max_result_bytes": MAX_RESULT_BYTES,
        "max_log_bytes": MAX_LOG_BYTES,
        **settings,
    }
    copy = Backburner(NAME, **given)
    copy.target = app.target
    for spec in app.tools:
        copy.add_tool(spec)
    return copy
