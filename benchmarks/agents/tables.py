"""What the agent's conversations came to, in figures and in tables."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich import box
from rich.table import Table

from .. import targets
from ..report import Results
from .agent import Conversation
from .hosts import HOSTS, Host

OURS = "Backburner"
#: How long the tool takes, in seconds, by what it is called in tables.
TOOLS = {"1 s": 1.0, "20 s": 20.0, "2 min": 120.0, "30 min": 1800.0}
_CALLS, _TOKENS, _DUPLICATES, _LOST, _LATE = "calls", "overhead tokens", "duplicate runs", "lost", "late s"


@dataclass
class Runs:
    """What the ledger says of a case: when its runs began, and when they ended."""

    began: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)


def runs_in(ledger: Path) -> dict[str, Runs]:
    """The runs of each case."""
    found: dict[str, Runs] = {}
    for line in ledger.read_text().splitlines():
        entry = json.loads(line)
        getattr(found.setdefault(entry["case"], Runs()), entry["event"]).append(entry["at"])
    return found


@dataclass(frozen=True)
class Cell:
    """One agent behind one host, with one tool of one server."""

    server: str
    host: Host
    tool: str
    conversation: Conversation
    runs: Runs

    @property
    def duplicates(self) -> int:
        return max(0, len(self.runs.began) - 1)

    def figures(self) -> dict[str, float]:
        known_at = self.conversation.known_at
        found = {
            _CALLS: self.conversation.calls,
            _TOKENS: self.conversation.overhead_tokens,
            _DUPLICATES: self.duplicates,
            _LOST: float(known_at is None),
        }
        if known_at is not None and self.runs.ended:
            found[_LATE] = round(max(0.0, known_at - self.runs.ended[0]), 2)
        return {f"{name}, {self.tool}": float(figure) for name, figure in found.items()}


def figures_of(cells: Sequence[Cell]) -> dict[str, float]:
    """What is held against the targets, of all that was measured of ours."""
    sixty = [
        cell
        for cell in cells
        if cell.host.wall_s == 60 and cell.host.is_known and cell.server == OURS and cell.tool == "2 min"
    ]
    held = [cell for cell in cells if cell.tool == "30 min" and _can_be_held(cell.host)]
    groups: dict[str, list[float]] = {
        targets.CALLS_WITH_TASKS: [cell.conversation.calls for cell in cells if cell.host.has_tasks],
        targets.CALLS_60_S: [cell.conversation.calls for cell in sixty],
        targets.CALLS_HELD: [cell.conversation.calls for cell in held],
        targets.DUPLICATES: [sum(cell.duplicates for cell in cells)],
        targets.LOST: [sum(cell.conversation.known_at is None for cell in cells)],
        targets.TOKENS: [statistics.mean(cell.conversation.overhead_tokens for cell in cells)]
        if cells
        else [],
    }
    return {name: float(max(found)) for name, found in groups.items() if found}


def _can_be_held(host: Host) -> bool:
    """Whether a call can be held on that host for half an hour: progress restarts its only short clock."""
    long = host.wall_s is None or host.wall_s > 1800
    return not host.has_tasks and host.idle_s is not None and long


def _servers(results: Results) -> list[str]:
    return list(dict.fromkeys(title.partition(" on ")[0] for title in results.figures if " on " in title))


def calls_table(results: Results, shape: box.Box = box.SIMPLE_HEAD) -> Table:
    """For each host and server the model's calls for each tool; a dagger is a result that was lost."""
    servers = _servers(results)
    table = Table("host", "waits", *servers, title=f"Calls for {', '.join(TOOLS)}", box=shape)
    for host in HOSTS:
        cells = [results.figures.get(f"{server} on {host.title}") for server in servers]
        if any(cells):
            table.add_row(host.title, host.waits, *("" if cell is None else _calls(cell) for cell in cells))
    return table


def _calls(figures: targets.Figures) -> str:
    return " · ".join(
        f"{figures[f'{_CALLS}, {tool}']:.0f}{'†' if figures[f'{_LOST}, {tool}'] else ''}" for tool in TOOLS
    )


def sums_table(results: Results, shape: box.Box = box.SIMPLE_HEAD) -> Table:
    """All hosts together: what a server costs a model, and what goes wrong."""
    columns = ("tasks", "calls a task", "overhead tokens a task", "most", "duplicate runs", "lost")
    late = ("done to known, median s", "most s")
    table = Table("", *columns, *late, title="All hosts and tools together", box=shape)
    for server in _servers(results):
        those = [figures for title, figures in results.figures.items() if title.startswith(f"{server} on ")]
        calls, tokens, late_s = _all(those, _CALLS), _all(those, _TOKENS), _all(those, _LATE)
        table.add_row(
            server,
            f"{len(calls)}",
            f"{statistics.mean(calls):.1f}",
            f"{statistics.mean(tokens):,.0f}",
            f"{max(tokens):,.0f}",
            f"{sum(_all(those, _DUPLICATES)):.0f}",
            f"{sum(_all(those, _LOST)):.0f}",
            *((f"{statistics.median(late_s):.1f}", f"{max(late_s):.0f}") if late_s else ("", "")),
        )
    return table


def _all(of: Sequence[targets.Figures], name: str) -> list[float]:
    return [figures[f"{name}, {tool}"] for figures in of for tool in TOOLS if f"{name}, {tool}" in figures]
