"""The tool with Backburner, and its defaults. `python backburner_server.py stdio|PORT`

What is worked out from the wall clock, which is not sped up, is told here as it would be if it were.
"""

from __future__ import annotations

import dataclasses
import os
import sys

from crunching import SCALE, crunch

import backburner.service
from backburner import Backburner
from backburner.settings import McpSettings
from backburner.tools.estimates import poll_after_ms

STORE = "BENCHMARK_STORE"

windows = {
    field.name: 600 / SCALE for field in dataclasses.fields(McpSettings) if field.name == "join_window_s"
}
bb = Backburner("agents", store=os.environ[STORE], mcp=windows, queues={"io": {"workers": 256}})
bb.tool(crunch)


def scaled_poll_after_ms(left_s: float | None, elapsed_s: float) -> int:
    return poll_after_ms(None if left_s is None else left_s * SCALE, elapsed_s * SCALE)


if __name__ == "__main__":
    from backburner.mcp.transport.run import run_http, run_stdio

    backburner.service.poll_after_ms = scaled_poll_after_ms
    if sys.argv[1] == "stdio":
        run_stdio(bb)
    else:
        run_http(bb, "127.0.0.1", int(sys.argv[1]), log_level="error")
