"""What benchmarks found, in one table of figures and one of targets, kept as JSON, and shown in pages.

python -m benchmarks.report      # writes the tables of PAGES from benchmarks/results/
"""

from __future__ import annotations

import io
import json
import os
import platform
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from rich import box
from rich.console import Console
from rich.table import Table

from . import targets
from .targets import TARGETS

COLUMNS = (
    targets.RATE,
    targets.RATE_16,
    targets.DISPATCH,
    targets.DISPATCH_P99,
    targets.SUBMIT,
    targets.CPU,
    targets.PLAIN_CALL,
    targets.CPU_PLAIN_CALL,
    targets.SUBMITS_16,
    targets.CPU_SUBMIT,
    targets.FIFTY_S,
)
#: What the README shows, and of whom.
IN_SHORT = (targets.RATE, targets.RATE_16, targets.DISPATCH, targets.SUBMIT, targets.CPU, targets.FIFTY_S)
SHOWN_IN_SHORT = (
    targets.SQLITE,
    targets.HUEY,
    targets.POSTGRES,
    targets.PGQUEUER,
    targets.OVER_MCP,
    targets.FASTMCP_TASKS,
)
ROOT = Path(__file__).parents[1]
PAGES = (
    ROOT / "docs" / "explanation" / "performance.md",
    ROOT / "docs" / "explanation" / "clients.md",
    ROOT / "benchmarks" / "README.md",
    ROOT / "README.md",
)
KEPT = ROOT / "benchmarks" / "results"
_KEPT_AS = ("before", "after", "agents", "held", "engines", "start")
BEGIN, END = "<!-- {} -->\n", "<!-- /{} -->"


def _machine() -> dict[str, Any]:
    return {
        "cores": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 1),
        "at": time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime()),
    }


@dataclass
class Results:
    """The figures of each contender by their names, and who was left out, with the reason."""

    figures: dict[str, dict[str, float]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=_machine)

    def add(self, other: Results | None) -> None:
        if other is not None:
            self.figures |= other.figures
            self.left_out |= other.left_out

    def save(self, file: Path) -> None:
        file.write_text(json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, file: Path) -> Self:
        """Nothing, where there is no such file."""
        return cls(**json.loads(file.read_text())) if file.exists() else cls()


def figures_table(results: Results, shape: box.Box = box.SIMPLE_HEAD) -> Table:
    columns = [name for name in COLUMNS if any(name in figures for figures in results.figures.values())]
    table = Table(title="Figures, all of one run", box=shape)
    table.add_column("", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right")
    in_order = sorted(results.figures.items(), key=lambda each: targets.RATE not in each[1])
    for title, figures in in_order:  # those over MCP after the others
        if figures.keys() & set(columns):
            table.add_row(title, *(_short(figures.get(column)) for column in columns))
    return table


def targets_table(results: Results, shape: box.Box = box.SIMPLE_HEAD) -> Table:
    table = Table("measure", "of", "figure", "beside", "ratio", "reach", "", title="Targets", box=shape)
    for target in TARGETS:
        found = target.found(results.figures)
        if found is not None:
            ratio = _short(found) if target.peer else ""
            own = _short(results.figures[target.ours][target.figure])
            table.add_row(
                target.what, target.ours, own, target.beside, ratio, _reach(target), target.verdict(found)
            )
    return table


def change_table(before: Results, after: Results) -> Table:
    """Targets with what was reached before and what is now."""
    table = Table("measure", "of", "beside", "before", "now", "reach", "", box=box.MARKDOWN)
    for target in TARGETS:
        if target.ours in (targets.AGENTS, targets.START, *targets.ENGINES):  # they have pages of their own
            continue
        then, now = target.found(before.figures), target.found(after.figures)
        verdict = "" if now is None else target.verdict(now)
        numbers = (_short(then), _short(now), _reach(target), verdict)
        table.add_row(target.what, target.ours, target.beside or "itself", *numbers)
    return table


def _reach(target: targets.Target) -> str:
    return f"{'≥' if target.at_least else '≤'} {target.reach:g}"


def _short(figure: float | None) -> str:
    if figure is None:
        return ""
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.2f}"


# -- the guide -------------------------------------------------------------------------------------


def filled_in(text: str) -> str:
    """The text of a page with the tables of what is kept, where it has a place for them."""
    from .agents.tables import calls_table, sums_table
    from .engines import costs_table

    before, after, agents, held, engines, start = (Results.load(KEPT / f"{name}.json") for name in _KEPT_AS)
    tables = {
        "before": figures_table(before, box.MARKDOWN),
        "after": figures_table(after, box.MARKDOWN),
        "change": change_table(before, after),
        "in short": figures_table(_in_short(after), box.MARKDOWN),
        "calls": calls_table(agents, box.MARKDOWN),
        "sums": sums_table(agents, box.MARKDOWN),
        "targets": targets_table(agents, box.MARKDOWN),
        "engines": figures_table(engines, box.MARKDOWN),
        "costs": costs_table(engines),
        "held": _one_by_one(held.figures.get(targets.HELD, {})),
        "start": _one_by_one(start.figures.get(targets.START, {})),
    }
    for name, table in tables.items():
        begin, end = BEGIN.format(name), END.format(name)
        head, place, rest = text.partition(begin)
        if place:
            text = head + begin + "\n" + _markdown(table) + "\n" + end + rest.partition(end)[2]
    return text


def _one_by_one(figures: targets.Figures) -> Table:
    table = Table("", "figure", box=box.MARKDOWN)
    for name, figure in figures.items():
        table.add_row(name, _short(figure))
    return table


def _in_short(results: Results) -> Results:
    """What somebody who looks around wants to know."""
    kept = {
        title: {name: figure for name, figure in results.figures.get(title, {}).items() if name in IN_SHORT}
        for title in SHOWN_IN_SHORT
    }
    return Results({title: figures for title, figures in kept.items() if figures})


def _markdown(table: Table) -> str:
    if not table.rows:
        return "Not measured yet.\n"
    table.title = None
    page = io.StringIO()
    Console(file=page, width=400).print(table)
    return "".join(f"{line.strip()}\n" for line in page.getvalue().splitlines() if line.strip())


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(filled_in(page.read_text()))
