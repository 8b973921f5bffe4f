"""How many files a reader of one call must open."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import backburner
from backburner.mcp.middleware import TaskMiddleware
from backburner.mcp.sdk import raw_request
from backburner.service import TaskService
from tests.deployment import Deployment
from tests.integration.mcp_server.harness import connect, make_app

SOURCE = Path(backburner.__file__).parent
PAGE = Path(__file__).parents[3] / "docs" / "architecture.md"
MOST_FILES = 21
#: Calls that come so close together read once how long their tool takes.
BURST_S = 0.4


class Walk:
    """The files of ours whose functions run, in any thread, from the next request until a task is stored."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.awaited = self.on = False

    def see(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or not (self.awaited or self.on) or frame.f_code is raw_request.__code__:
            return  # the last is the client that waits for the answer
        if frame.f_code is TaskMiddleware.__call__.__code__ and self.awaited:
            self.awaited, self.on = False, True
        elif frame.f_code is TaskService.kept.__code__:
            self.on = False
        path = Path(frame.f_code.co_filename)
        if self.on and path.is_relative_to(SOURCE):
            self.files.add(str(path.relative_to(SOURCE)))


@contextmanager
def watched() -> Iterator[Walk]:
    walk, before = Walk(), sys.getprofile()
    threading.setprofile(walk.see)
    sys.setprofile(walk.see)
    try:
        yield walk
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


async def test_the_walk_of_a_call_is_short_and_told_as_it_is(deployment: Deployment) -> None:
    with watched() as walk, deployment.app(make_app) as app:
        async with connect(app.mcp_server(), "2026") as peer:
            await peer.poll(await peer.start("slow", {"n": 0}))  # what is made when first used, is made
            for _ in range(20):
                began = time.monotonic()
                await peer.start("slow", {"n": 0})
                walk.files, walk.awaited = set(), True
                second = await peer.start("slow", {"n": 0})
                took_s = time.monotonic() - began
                await peer.poll(second)
                if took_s < BURST_S:
                    break
    told = PAGE.read_text().partition("<!-- walk: call -->")[2].partition("<!-- /walk -->")[0]
    assert walk.files == set(re.findall(r"`([\w/]+\.py)`", told))
    assert len(walk.files) <= MOST_FILES
