"""`backburner bridge`: tasks for hosts that know nothing of them."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from .exits import Exit
from .serve import Framing


def add_to(app: typer.Typer) -> None:
    app.command(rich_help_panel="Servers")(bridge)


def bridge(
    server: Annotated[
        list[str], typer.Argument(help="The server: a URL, or after -- the command that starts it")
    ],
    patience: Annotated[
        str | None,
        typer.Option(
            help="How long a call is held before the host gets a handle, such as 50s (default: by its name)"
        ),
    ] = None,
    framing: Annotated[
        Framing, typer.Option(help="How the command's messages are told apart: by lines, or as in LSP")
    ] = Framing.newline,
    token: Annotated[
        str | None,
        typer.Option(help="The bearer token for a URL", envvar="BACKBURNER_TOKEN", show_envvar=True),
    ] = None,
) -> None:
    """Serve a host over stdio that knows nothing of tasks, in front of a server that does.

    Calls are held, with progress, for as long as the host waits; then it gets a handle, and the
    tool wait_for_task to come back with.

    \b
    Examples:
      backburner bridge -- python lab.py
      backburner bridge --patience 4m -- npx some-server
      backburner bridge --framing lsp -- lsp-style-server
      backburner bridge http://127.0.0.1:8765/mcp
    """
    import asyncio

    from ..client.bridge import Bridge
    from ..config import Settings
    from ..mcp.serving.interrupts import until_interrupted
    from ..times import duration_s

    settings = Settings.load("bridge")
    if patience is not None:
        settings = settings.with_group(
            dataclasses.replace(settings.mcp, patience_s=duration_s(patience, "patience"))
        )
    target = server[0] if len(server) == 1 and "://" in server[0] else server
    bridge = Bridge(target, settings=settings, token=token, framing=framing.value)
    with until_interrupted() as interrupted:
        asyncio.run(bridge.run())
    if interrupted.is_set():
        raise typer.Exit(Exit.INTERRUPTED)
