"""The command line. Each group of verbs is a file here."""

from __future__ import annotations

import sys

import typer

from ..errors import BackburnerError
from . import serve

app = typer.Typer(
    name="backburner",
    help="Durable long-running tasks for MCP servers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
serve.add_to(app)


@app.callback()
def _root() -> None:
    """Durable long-running tasks for MCP servers."""


def main() -> None:
    """Run the command line; an error of ours is one line on stderr and exit code 2."""
    try:
        app()
    except BackburnerError as error:
        print(f"backburner: {error}", file=sys.stderr)
        sys.exit(2)
