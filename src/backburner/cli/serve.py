"""`backburner serve`: offer an app's tools to MCP clients."""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..app import Backburner


class Framing(Enum):
    newline = "newline"
    lsp = "lsp"


def add_to(app: typer.Typer) -> None:
    app.command()(serve)


def serve(
    target: Annotated[str, typer.Argument(help="The app: lab.py, lab.py:bb or package.module:bb")],
    http: Annotated[
        str | None, typer.Option(help="Serve over HTTP at HOST:PORT, and not over stdio", metavar="HOST:PORT")
    ] = None,
    framing: Annotated[
        Framing, typer.Option(help="How messages are told apart over stdio: by lines, or as in LSP")
    ] = Framing.newline,
    allow_anonymous: Annotated[
        bool,
        typer.Option("--allow-anonymous", help="Listen beyond this host although no tokens are configured"),
    ] = False,
    log_level: Annotated[str, typer.Option(help="How much the HTTP server says")] = "info",
) -> None:
    """Serve TARGET over stdio, or over HTTP with --http."""
    from ..mcp.serving.run import run_http, run_stdio, split_address
    from ..target import load, parse

    bb: Backburner = load(parse(target))
    if http is None:
        run_stdio(bb, framing.value)
        return
    host, port = split_address(http)
    if allow_anonymous:
        bb.settings = bb.settings.with_group(dataclasses.replace(bb.settings.http, allow_anonymous=True))
    run_http(bb, host, port, log_level=log_level)
