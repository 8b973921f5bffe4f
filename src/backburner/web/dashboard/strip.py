"""The strip of a task: when it waited, when it was worked on, and what it asked, from left to right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

#: Of a task that was tried more often, the last tries are drawn.
_MOST_ATTEMPTS = 24
#: However short a stretch was, it can be seen: so many of a hundred.
_NARROWEST = 1.2
_MOST_QUESTIONS = 100
_WORDS = {
    "submit": "Submitted",
    "claim": "Taken by a worker",
    "start": "Begun",
    "ask": "Asked something",
    "answer": "Answered",
    "cancel": "Asked to stop",
    "stop": "Told to stop",
    "confirm": "Stopped",
    "succeed": "Succeeded",
    "fail": "Failed",
    "retry": "To be tried again",
    "hand_back": "Given back undone",
    "time_out": "Timed out",
    "expire": "Expired",
    "told_model": "The model was told",
    "not_told_model": "The model could not be told",
}
_OUTCOMES = {"timedout": "timed_out", "handedback": "handed_back"}


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of the strip. `begin` and `width` are in hundredths of it; `kind` is its colour."""

    kind: str
    title: str
    seconds: float
    begin: float
    width: float
    label: str = ""


@dataclass(frozen=True, slots=True)
class Happening:
    """A line of the list below the strip."""

    after_s: float
    at: str
    words: str
    kind: str
    attempt: int
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Strip:
    """`questions` lie upon `stretches`, which are all that there was, without a gap."""

    stretches: Sequence[Stretch]
    questions: Sequence[Stretch]
    total_s: float
    left_out: int


def strip_of(task: Mapping[str, Any], now_ms: int) -> Strip:
    """Of a task as `Reading.task` has it."""
    tries = task["attempts"][-_MOST_ATTEMPTS:]
    left_out = len(task["attempts"]) - len(tries)
    begin = _ms(tries[0]["claimed_at"]) if left_out else _ms(task["submitted_at"])
    end = max(_ms(task["completed_at"]) if task["completed_at"] else now_ms, begin)
    pieces = _pieces(tries, begin, end, open_end=task["completed_at"] is None)
    widths = _widths([till - since for _, _, _, since, till in pieces])
    places = [sum(widths[:at]) for at in range(len(widths))]
    stretches = [
        Stretch(kind, title, (till - since) / 1000, place, width, label)
        for (kind, title, label, since, till), place, width in zip(pieces, places, widths, strict=True)
    ]

    def place_of(ms: int) -> float:
        for (*_, since, till), place, width in zip(pieces, places, widths, strict=True):
            if ms <= till:
                return place + (width * (ms - since) / (till - since) if ms > since else 0)
        return 100.0

    questions = []
    for asked in task["all_questions"][-_MOST_QUESTIONS:]:
        since, till = _ms(asked["asked_at"]), _ms(asked["answered_at"]) if asked["answered_at"] else end
        if since >= begin:
            place = min(place_of(since), 100 - _NARROWEST)
            width = max(_NARROWEST, place_of(till) - place)
            title = f"Asked: {asked['action'] or 'not answered yet'}"
            questions.append(Stretch("asked", title, (till - since) / 1000, place, width))
    return Strip(stretches, questions, (end - begin) / 1000, left_out)


_Piece = tuple[str, str, str, int, int]  # its kind, title, label, begin and end


def _pieces(tries: Sequence[Mapping[str, Any]], begin: int, end: int, *, open_end: bool) -> list[_Piece]:
    """Waiting and attempts in turn, without a gap and without what took no time."""
    pieces: list[_Piece] = []
    at = begin
    for one in tries:
        claimed, ended = _ms(one["claimed_at"]), _ms(one["ended_at"]) if one["ended_at"] else end
        began = _ms(one["started_at"]) if one["started_at"] else ended
        claimed, began, ended = (min(max(ms, at), end) for ms in (claimed, began, ended))
        number, told = one["attempt"], one["outcome"] or "running"
        outcome = _OUTCOMES.get(told, told)
        pieces.append(("waited", "Waited", "", at, claimed))
        pieces.append(("starting", f"Attempt {number} starting", "", claimed, began))
        kind = outcome if one["started_at"] or one["ended_at"] else "starting"
        last_ms = max(ended, began + (0 if one["ended_at"] else 1))
        pieces.append((kind, f"Attempt {number}: {outcome.replace('_', ' ')}", f"{number}", began, last_ms))
        at = max(ended, at)
    if at < end or not pieces:
        waited = ("waited", "Waits" if open_end else "Waited", "", at, max(end, at + 1))
        pieces.append(waited)
    return [piece for piece in pieces if piece[4] > piece[3]] or [("waited", "Waits", "", begin, begin + 1)]


def _widths(spans: Sequence[int]) -> list[float]:
    """How wide each is, of a hundred in all: as long as it took, but never too narrow to be seen."""
    narrowest = min(_NARROWEST, 100 / len(spans))
    total = sum(spans)
    narrow = {at for at, one in enumerate(spans) if 100 * one / total < narrowest}
    rest = sum(one for at, one in enumerate(spans) if at not in narrow)
    free = 100 - narrowest * len(narrow)
    return [narrowest if at in narrow else free * one / rest for at, one in enumerate(spans)]


def happenings(task: Mapping[str, Any]) -> list[Happening]:
    """All that happened to a task, the latest last."""
    begin = _ms(task["submitted_at"])
    return [
        Happening(
            max(0, _ms(event["ts"]) - begin) / 1000,
            event["ts"],
            _WORDS.get(event["signal"], event["signal"]),
            event["to_state"],
            event["attempt"],
            event["detail"],
        )
        for event in task["events"]
    ]


def _ms(time: str) -> int:
    return int(datetime.fromisoformat(time).timestamp() * 1000)
