"""A scripted agent that does what models do with a slow tool. It is the same for every server and host.

It reads the text that it got. It knows the report that it is after, follows a hint ("call X"), polls where it
is told of something that is not over yet, and calls again when its host gave a call up. It has no clock: only
turns, each of which takes some seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .calling import Answer, Calls
from .servers.crunching import SCALE, now, report_on

#: How long a model takes from one answer to its next call.
TURN_S = 5.0
#: How often it makes the same call again after its host gave it up, before it says that the tool is broken.
TRIES = 2
#: A call that took longer was a wait by itself; after a shorter one it pauses, twice as long each time.
_A_WAIT_S, _LONGEST_PAUSE_S = 10.0, 60.0
#: After so many looks in a row it tells its user that it takes long; who then asks now and then.
_LOOKS, _USER_ASKS_AFTER_S = 20, 300.0
_MOST_CALLS = 80
_USER_LEAVES_AFTER_S = 3900.0
_ID = re.compile(r"\b(?:tsk_\w+|[0-9a-f]{16,})\b")
_HINT = re.compile(r"\b[Cc]all (\w+)")


@dataclass
class Conversation:
    """What it took to get the report on one case."""

    case: str
    calls: int = 0
    chars: int = 0
    known_at: float | None = None
    said: list[str] = field(default_factory=list)

    @property
    def overhead_tokens(self) -> int:
        """Tokens of tool text both ways without the result itself, at four characters each."""
        whole = self.chars - (len(report_on(self.case)) if self.known_at is not None else 0)
        return round(whole / 4)


Call = tuple[str, Mapping[str, Any]]


async def converse(calls: Calls, case: str, first: Call) -> Conversation:
    """Get the report on a case, beginning with that call."""
    conversation = Conversation(case)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_USER_LEAVES_AFTER_S / SCALE):
            await _converse(calls, case, first, conversation)
    return conversation


async def _converse(calls: Calls, case: str, call: Call, conversation: Conversation) -> None:
    tried, looks, pause_s, ids = 1, 0, TURN_S, ""
    while conversation.calls < _MOST_CALLS:
        began = now()
        answer = await _make(calls, call, conversation)
        if f"Report on {case}." in answer.text:
            conversation.known_at = now()
            return
        ids = next(iter(_ID.findall(answer.text)), ids)
        if answer.given_up:
            if tried == TRIES:
                return
            tried, wait_s = tried + 1, TURN_S
        elif (hinted := _next(call, answer.text, calls, ids, conversation)) is not None and hinted != call:
            call, tried, pause_s, wait_s = hinted, 1, TURN_S, TURN_S
        elif not ids:
            return  # an error that says nothing of how to go on
        else:
            looks, tried = looks + 1, 1
            waited = now() - began > _A_WAIT_S
            wait_s = TURN_S if waited else pause_s
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            wait_s = _USER_ASKS_AFTER_S if looks > _LOOKS else wait_s
        await asyncio.sleep(wait_s / SCALE)


async def _make(calls: Calls, call: Call, conversation: Conversation) -> Answer:
    name, arguments = call
    answer = await calls.call(name, arguments)
    conversation.calls += 1
    conversation.chars += len(name) + len(json.dumps(arguments)) + len(answer.text)
    conversation.said += [f"-> {name} {json.dumps(arguments)}", f"<- {answer.text}"]
    return answer


def _next(call: Call, text: str, calls: Calls, found: str, conversation: Conversation) -> Call | None:
    """What to call next: as the answer says, or after the first call as the tool's own description does."""
    hinted = _hinted(text, calls, found)
    if hinted is None and found and conversation.calls == 1:
        return _hinted(str(calls.tools[call[0]].get("description")), calls, found)
    return hinted


def _hinted(text: str, calls: Calls, found: str) -> Call | None:
    """The call that a text asks for: a tool that is listed, with the id that was found."""
    for name in _HINT.findall(text):
        if name in calls.tools:
            schema = calls.tools[name]["inputSchema"]
            taken = schema.get("required") or [key for key in schema["properties"] if key.endswith("_id")]
            return name, dict.fromkeys(taken, found)
    return None
