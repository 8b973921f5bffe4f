"""The command line. Each module adds its commands to the app in `command.py`.

Commands import heavy modules when they run, so that `--help` and completion are fast.
"""

from __future__ import annotations

import json
import sys

import typer

from ..core.text import printable
from ..errors import BackburnerError
from ..version import VERSION
from . import calls, demo, doctor, logs, maintenance, serve, status, tasks
from .command import app, exit_of_error

__all__ = ["app", "calls", "demo", "doctor", "logs", "main", "maintenance", "serve", "status", "tasks"]


def _version(wanted: bool) -> None:
    if wanted:
        print(f"backburner {VERSION}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version"
    ),
) -> None:
    """Durable long-running tasks for MCP servers."""


def main() -> None:
    """Run the command line. An error is one line on stderr, as JSON with --json."""
    try:
        app()
    except BackburnerError as error:
        if "--json" in sys.argv:
            print(json.dumps({"error": error.to_dict()}, default=str), file=sys.stderr)
        else:
            print(f"backburner: {printable(error)}", file=sys.stderr)
        sys.exit(exit_of_error(error))
