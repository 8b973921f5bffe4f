"""What the Python programs share: how they tell of each scenario.

They run in environments of different SDKs, so this knows none of them.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any

Scenario = Callable[[], Awaitable[dict[str, Any]]]


async def report(**scenarios: Scenario) -> None:
    """Run them in turn and print one line of JSON about each: what it returned, or the error it met."""
    for name, run in scenarios.items():
        try:
            outcome = await run()
        except Exception as error:
            outcome = {"code": getattr(getattr(error, "error", None), "code", None), "message": str(error)}
        print(json.dumps({"scenario": name, **outcome}), flush=True)
