"""Checks of `doctor` about the app and its tools."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from .live_workers import as_written
from .place import Place, learn_tools


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check saw. `advice` is empty when nothing needs doing."""

    check: str
    level: Literal["ok", "warning", "problem"]
    message: str
    advice: str = ""


def check_app(place: Place) -> Iterator[Finding]:
    """Can runners find the app, and do they see the same globals."""
    if place.app is not None:
        yield Finding("app", "ok", f"{place.app.name} loads from {as_written(place.app.target) or 'nowhere'}")
        if not place.app.target:
            advice = "Put the app into a .py file; runners import it from there."
            yield Finding("app", "problem", "runners cannot find the app", advice)
        for lost in place.app.lost_globals():
            advice = "Set it when the file is imported, or by the environment: docs/attaching.md"
            yield Finding("app", "warning", str(lost), advice)


def check_tools(place: Place) -> Iterator[Finding]:
    """Are the tools of an attached server there that are said to be slow, and do their options work."""
    if place.app is None:
        return
    try:
        if place.app.server is not None:
            learn_tools(place.app)
    except Exception as error:  # whatever the server does
        message = f"the server cannot list its tools: {type(error).__name__}: {error}"
        yield Finding("tools", "problem", message, "Run the server and list its tools with a client.")
        return
    offered = ", ".join(place.app.tools.offered) or "none"
    for pattern in place.app.tools.unmatched:
        message = f"slow={pattern!r} matches none of the server's tools, so it makes no tool slow"
        advice = f"Mend it, or take it out. The server's tools are: {offered}"
        yield Finding("tools", "warning", message, advice)
    for spec in place.app.tools:
        if spec.answer == "handle" and not spec.allows_handle:
            message = f'{spec.name}: its output schema does not allow a handle, so answer="handle" is held'
            advice = (
                "Give it no output schema (FastMCP: output_schema=None, MCPServer: structured_output=False), "
                "or let it return a dict. Clients with tasks, or that ask for a handle, are not concerned."
            )
            yield Finding("tools", "warning", message, advice)
