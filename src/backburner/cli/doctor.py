"""`doctor`: is everything in order, and if not, what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from ..records import record
from ..terminal_text import printable
from .exits import Exit
from .output import cell, print_json, show_line
from .place import Where
from .verb import verb

if TYPE_CHECKING:
    from .app_checks import Finding

_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "problem": ("✗", "red")}


def add_to(app: typer.Typer) -> None:
    verb(
        app,
        panel="Looking after a store",
        without=("owner", "all_owners"),
        examples=["backburner doctor -t lab.py", "backburner doctor --store sqlite:///lab.db --json"],
    )(doctor)


def doctor(where: Where) -> None:
    """Check the app, the store, leases, disk, clock, supervisor and queues; say what to do.

    Changes nothing. Exit code 4 when there is a problem; warnings alone give 0.
    """
    from .checkup import examine

    findings = list(examine(where))
    worst = "problem" if any(one.level == "problem" for one in findings) else "ok"
    if where.as_json:
        print_json({"findings": record(findings), "healthy": worst == "ok"})
    else:
        for finding in findings:
            _show(finding)
    raise typer.Exit(Exit.OK if worst == "ok" else Exit.TROUBLE)


def _show(finding: Finding) -> None:
    mark, style = _MARKS[finding.level]
    show_line(
        cell(f"{mark} ", style)
        .append_text(cell(f"{finding.check}: ", "bold"))
        .append(printable(finding.message))
    )
    if finding.advice:
        show_line(cell(f"  → {finding.advice}"))
