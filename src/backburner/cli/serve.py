"""`backburner serve`: offer an app's tools to MCP clients."""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import Annotated

import typer

from .place import Where, load_app, load_settings
from .verb import verb


class Framing(Enum):
    newline = "newline"
    lsp = "lsp"


def add_to(app: typer.Typer) -> None:
    verb(
        app,
        panel="Servers",
        without=("target", "owner", "all_owners", "as_json"),
        examples=[
            "backburner serve lab.py",
            "backburner serve lab.py --http 127.0.0.1:8765",
            "backburner serve lab.py --http 0.0.0.0:8765 --allow-anonymous",
        ],
    )(serve)


def serve(
    where: Where,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="TARGET",
            help="The app: lab.py, lab.py:bb or package.module:bb (default: BACKBURNER_TARGET)",
            show_default=False,
        ),
    ] = None,
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
    """Serve an app over stdio, or over HTTP with --http; Ctrl-C ends it, and its tasks go on."""
    from ..mcp.serving.run import run_http, run_stdio, split_address

    target = target or load_settings(where).target
    if not target:
        raise typer.BadParameter("name the app: backburner serve lab.py (or set BACKBURNER_TARGET)")
    bb = load_app(where, target)
    if http is None:
        run_stdio(bb, framing.value)
        return
    host, port = split_address(http)
    if allow_anonymous:
        bb.settings = bb.settings.with_group(dataclasses.replace(bb.settings.http, allow_anonymous=True))
    run_http(bb, host, port, log_level=log_level)
