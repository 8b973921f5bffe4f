"""What the programs share that only call tools: what to call, and how to tell what they were given.

They run in environments of different SDKs, so this knows none of them.

    python typed_calls_….py NAME CALLS http URL
    python typed_calls_….py NAME CALLS stdio COMMAND ARGUMENT...

NAME is what the client calls itself, and CALLS a JSON object: by scenario `{tool, arguments, meta}`,
and where the client is to give up `timeout_s`, when there is a file it is to be stopped `stop_at`. With
`after` it waits for a file first.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tests.system.interop.clients.programs import report

NAME, SERVER = sys.argv[1], sys.argv[3:]
CALLS: dict[str, dict[str, Any]] = json.loads(sys.argv[2])

#: Calls a tool; gives the result in the protocol's own names, and what the client itself makes of it.
Call = Callable[[str, dict[str, Any], dict[str, Any], float | None], Awaitable[tuple[dict[str, Any], Any]]]


async def tell(call: Call, schemas: Mapping[str, Any]) -> None:
    async def told(
        tool: str,
        arguments: dict[str, Any],
        meta: dict[str, Any],
        timeout_s: float | None = None,
        stop_at: str | None = None,
        after: str | None = None,
    ) -> dict[str, Any]:
        await _seen(after)
        calling = asyncio.ensure_future(call(tool, arguments, meta, timeout_s))
        if stop_at is not None:
            await _seen(stop_at)
            calling.cancel()
            await asyncio.wait([calling])
            return {"stopped": calling.cancelled()}
        result, data = await calling
        return {
            "isError": bool(result.get("isError")),
            "structured": result.get("structuredContent"),
            "meta": result.get("_meta"),
            "content": [_short(block) for block in result["content"]],
            "data": data,
        }

    async def listed() -> dict[str, Any]:
        return {"schemas": dict(schemas)}

    calls = {name: partial(told, **{"arguments": {}, "meta": {}, **one}) for name, one in CALLS.items()}
    await report(listed=listed, **calls)


async def _seen(file: str | None) -> None:
    """Return when the file is there."""
    while file is not None and not await asyncio.to_thread(Path(file).exists):  # noqa: ASYNC110
        await asyncio.sleep(0.05)


def _short(block: Mapping[str, Any]) -> dict[str, Any]:
    """A block, with the length of what is long in place of it."""
    return {
        key: len(value) if key in ("text", "data") and len(value) > 3000 else value
        for key, value in block.items()
    }
