"""The command line. Each group of verbs is a file here; `place.py` says where they look.

What is heavy is imported by the verb that needs it, so that `--help` and completion are fast.
"""

from __future__ import annotations

import json
import sys

import typer

from ..errors import BackburnerError
from ..terminal_text import printable
from ..version import VERSION
from . import (
    answering,
    artifacts,
    bridge,
    calls,
    clients,
    dashboard,
    demo,
    doctor,
    listing,
    logs,
    overview,
    pausing,
    results,
    serve,
    steering,
    supervising,
    tasks,
    tokens,
    top,
    upkeep,
    webhooks,
    worker,
)
from .exits import exit_of_error

app = typer.Typer(
    name="backburner",
    help="Durable long-running tasks for MCP servers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
for group in (
    serve,
    worker,
    supervising,
    dashboard,
    bridge,
    tokens,
    calls,
    listing,
    tasks,
    steering,
    logs,
    results,
    artifacts,
    answering,
    overview,
    top,
    pausing,
    upkeep,
    webhooks,
    clients,
    doctor,
    demo,
):
    group.add_to(app)


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
    """Run the command line. An error of ours is one line on stderr, as JSON with --json; see `exits`."""
    try:
        app()
    except BackburnerError as error:
        if "--json" in sys.argv:
            print(json.dumps({"error": error.to_dict()}, default=str), file=sys.stderr)
        else:
            print(f"backburner: {printable(error)}", file=sys.stderr)
        sys.exit(exit_of_error(error))
