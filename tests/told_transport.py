"""How a test server serves: as the words after its name say, `stdio` or `http PORT`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backburner import Backburner


def serve_as_told(app: Backburner) -> None:
    match sys.argv[1:]:
        case ["http", port]:
            from backburner.mcp.transport.run import run_http

            run_http(app, "127.0.0.1", int(port), log_level="critical")
        case _:
            app.run()
