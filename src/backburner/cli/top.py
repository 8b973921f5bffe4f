"""`top`: how busy a store is, on one screen, as it changes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from ..lifecycle import LEASED, TERMINAL, State
from ..records import status_record
from ..terminal_text import printable
from .listing import progress_words, shown_id, tasks_of_others
from .live_picture import show_live
from .output import age, cell, print_json, show, span, state_cell, stdout, table, took_s
from .place import Place
from .verb import verb

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from ..service import TaskStatus

_ACTIVE = frozenset(State) - TERMINAL
#: For how long the ended tasks are counted that the line at the top shows, and in how many steps it is drawn.
_MINUTE_S = 60.0
_STEPS = 30
_BARS = " ▁▂▃▄▅▆▇█"
_MOST_SLOTS = 16
_FEWEST_ROWS = 5
_LATEST = 200


def add_to(app: typer.Typer) -> None:
    verb(
        app,
        panel="Looking after a store",
        examples=["backburner top -t lab.py", "backburner top --all-owners", "backburner top --json"],
        remote=True,
    )(top)


def top(place: Place) -> None:
    """Show how busy it is: tasks, queues, workers and what they are at, as it changes. q or Ctrl-C ends it.

    Where there is no terminal, or with --json, it shows how it is now.
    """
    if place.as_json:
        print_json(_seen(place).record())
    elif stdout().is_terminal:
        ended = Ended()
        show_live(place, lambda: _picture(place, _seen(place), ended, stdout().height))
    else:
        show(_picture(place, _seen(place), Ended(), None))


class Ended:
    """How many tasks ended lately, from what was counted now and then."""

    def __init__(self) -> None:
        self._counted: deque[tuple[float, int]] = deque()

    def count(self, ended: int) -> None:
        """A number that got smaller means that tasks were deleted: it is counted from there."""
        now = time.monotonic()
        before = self._counted[-1][1] if self._counted else ended
        if ended < before:
            self._counted = deque((at, number - before + ended) for at, number in self._counted)
        self._counted.append((now, ended))
        while now - self._counted[0][0] > _MINUTE_S:
            self._counted.popleft()

    @property
    def per_second(self) -> float:
        (begun, first), (now, last) = self._counted[0], self._counted[-1]
        return (last - first) / (now - begun) if now > begun else 0.0

    @property
    def drawn(self) -> str:
        """The last minute, oldest first, as a row of bars."""
        now = self._counted[-1][0]
        steps = [0] * _STEPS
        for (_, before), (at, number) in zip(self._counted, list(self._counted)[1:], strict=False):
            steps[max(0, _STEPS - 1 - int((now - at) * _STEPS / _MINUTE_S))] += number - before
        most = max(steps)
        return "".join(_BARS[-(-step * (len(_BARS) - 1) // most)] if most else " " for step in steps)


@dataclass(frozen=True)
class Seen:
    """What there is at one moment."""

    states: Mapping[str, int]
    queues: Sequence[Mapping[str, Any]]
    supervisor: Mapping[str, Any]
    workers: Sequence[Mapping[str, Any]]
    active: Sequence[TaskStatus]
    latest: Sequence[TaskStatus]

    def record(self) -> dict[str, Any]:
        return {
            "supervisor": self.supervisor,
            "states": self.states,
            "queues": self.queues,
            "workers": [one for one in self.workers if one["alive"]],
            "active": [status_record(one) for one in self.active],
            "latest": [status_record(one) for one in self.latest],
        }


def _seen(place: Place) -> Seen:
    def listed(states: Collection[State], limit: int, *, oldest_first: bool) -> list[TaskStatus]:
        page = place.service.list(
            owner=place.owner, states=sorted(states), limit=limit, oldest_first=oldest_first
        )
        return [place.service.view(task) for task in page.tasks]

    return Seen(
        place.operator.states(place.owner),
        place.operator.queues(),
        place.operator.supervisor(),
        place.operator.workers(),
        # Who runs first, then who comes next.
        [
            *listed(LEASED, _LATEST, oldest_first=True),
            *listed(_ACTIVE - LEASED, _LATEST, oldest_first=True),
        ],
        listed(TERMINAL, _FEWEST_ROWS, oldest_first=False),
    )


def _picture(place: Place, seen: Seen, ended: Ended, height: int | None) -> RenderableType:
    from rich.console import Group

    ended.count(sum(seen.states.get(state, 0) for state in TERMINAL))
    queues = _queues(seen)
    above = [_headline(place, seen), _states(seen, ended), cell(""), queues, cell("")]
    rows = len(seen.active) if height is None else max(_FEWEST_ROWS, height - queues.row_count - 6)
    shown = seen.active[:rows]
    below = [_tasks(place, shown)] if shown else [cell("Nothing runs or waits.", "dim")]
    if more := sum(seen.states.get(state, 0) for state in _ACTIVE) - len(shown):
        below.append(cell(f"… and {more} more", "dim"))
    if seen.latest and (height is None or len(shown) + len(seen.latest) + 3 <= rows):
        below += [cell(""), _tasks(place, seen.latest)]
    if others := tasks_of_others(place):
        below.append(cell(f"{others} not shown: --all-owners", "dim"))
    return Group(*above, *below)


def _headline(place: Place, seen: Seen) -> Text:
    who = cell(f"supervisor {seen.supervisor['state']}", "green")
    if seen.supervisor["trouble"] is not None:
        who = cell(seen.supervisor["trouble"], "red")
    line = cell("backburner ", "bold").append(printable(place.name))
    line.append(time.strftime("  %H:%M:%S  "), "dim").append_text(who)
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def _states(seen: Seen, ended: Ended) -> Text:
    line = cell("")
    for state in State:
        if seen.states.get(state):
            line.append_text(state_cell(state)).append(f" {seen.states[state]}  ")
    line.append(f"ended {ended.per_second:.1f}/s ").append(ended.drawn, "green")
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def _queues(seen: Seen) -> Any:
    rows = [
        [
            one["queue"],
            one["queued"],
            one["running"],
            _slots(one["workers"], one["running"]) if one["paused_at"] is None else cell("paused", "yellow"),
        ]
        for one in seen.queues
        if one["queued"] or one["running"] or one["workers"] or one["paused_at"]
    ]
    return table(["QUEUE", "QUEUED", "RUNNING", "WORKERS"], rows, whole=("QUEUE", "QUEUED", "RUNNING"))


def _slots(workers: int, leased: int) -> Text:
    """A mark for each worker: full for one that has a task. A worker's own word of it may be seconds old."""
    busy = min(workers, leased)
    if workers > _MOST_SLOTS:
        return cell(f"{busy} of {workers} busy", "cyan" if busy else "dim")
    return cell("■" * busy, "cyan").append("□" * (workers - busy), "dim")


def _tasks(place: Place, statuses: Sequence[TaskStatus]) -> Any:
    rows = [
        [
            shown_id(place, status.task_id),
            state_cell(status.task.state),
            status.task.tool_name,
            age(status.task.submitted_at) if status.task.started_at is None else span(took_s(status.task)),
            _bar(status),
            progress_words(status),
        ]
        for status in statuses
    ]
    return table(["TASK", "STATE", "TOOL", "FOR", "", "PROGRESS"], rows, whole=("TASK", "STATE"))


def _bar(status: TaskStatus) -> Text:
    progress = status.task.progress
    if status.task.finished or progress is None or progress.percent is None:
        return cell("")
    full = round(max(0.0, min(100.0, progress.percent)) / 10)
    return cell("━" * full, "cyan").append("╌" * (10 - full), "dim")
