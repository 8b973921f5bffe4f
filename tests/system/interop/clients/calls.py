"""What the programs that compare have in common: which calls they make, what they send, and how they tell.

    PROGRAM held|task URL < calls.json

The calls are a JSON array of `[name, tool, arguments]`. One line of JSON is printed for each: its `name`,
what it came to (`result` or `error`), and what was heard meanwhile (`progress`, `logs`). The programs run in
environments of different SDKs, so this knows none of them.
"""

import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

LOG_LEVEL = "io.modelcontextprotocol/logLevel"
HEADERS = {
    "Authorization": "Bearer opensesame",
    "Cookie": "session=tasty",
    "X-Api-Key": "key-of-ada",
    "X-Team": "lab",
    "X-Trace-Id": "1-2-3",
    "User-Agent": "sameness/1",
}
META: Any = {"example.com/asked": {"deep": [1]}, LOG_LEVEL: "info"}
CLIENT: Any = {"name": "sameness", "version": "7"}


class Call(NamedTuple):
    name: str
    tool: str
    arguments: dict[str, Any]


class Heard:
    """What the client hears while a call is under way."""

    def __init__(self) -> None:
        self.said: dict[str, list[Any]] = {"progress": [], "logs": []}

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.said["progress"].append([progress, total, message])

    async def log(self, params: Any) -> None:
        self.said["logs"].append([params.level, params.logger, params.data])

    def taken(self) -> dict[str, list[Any]]:
        said, self.said = self.said, {"progress": [], "logs": []}
        return said


class _Calls:
    @property
    def url(self) -> str:
        return sys.argv[2]

    async def __call__(self, call: Callable[[Call, bool], Awaitable[Any]], heard: Heard) -> None:
        """Make them in turn; `call` gives the result as the client's own model."""
        for asked in (Call(*each) for each in json.load(sys.stdin)):
            heard.taken()
            try:
                given = await call(asked, sys.argv[1] == "task")
                result = given.model_dump(by_alias=True, mode="json", exclude_none=True)
                outcome: dict[str, Any] = {"result": result}
            except Exception as error:
                outcome = {"error": _told(error)}
            print(json.dumps({"name": asked.name, **outcome, **heard.taken()}), flush=True)


def _told(error: Exception) -> dict[str, Any]:
    told = getattr(error, "error", None)
    if told is None or not hasattr(told, "code"):
        return {"message": f"{type(error).__name__}: {error}"}
    return {"code": told.code, "message": told.message, "data": getattr(told, "data", None)}


make_calls = _Calls()
