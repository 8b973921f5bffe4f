"""Deployments that outlive a test: what starts once for many tests is what costs most of their time.

A test may use one whose tasks concern nobody else: it names its own tasks, and sees those of others in lists.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Self

from tests import services
from tests.deployment import Deployment


class Lasting:
    """Deployments by their program and framework, and servers on them, each made when it is first needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = contextlib.ExitStack()
        self._made: dict[tuple[Path, str], Deployment] = {}
        self._urls: dict[Path, str] = {}

    @contextlib.contextmanager
    def deployment(self, program: Path, kind: str = "own") -> Iterator[Deployment]:
        """The one of that program for the length of a test, with a supervisor that stays when it ends."""
        if (program, kind) not in self._made:
            folder = self._folder / f"{program.stem}-{kind}"
            folder.mkdir()
            settings = {"mcp__patience_s": "60", "supervisor__idle_exit_s": "0"}
            made = Deployment(folder, (program,), settings, {"SERVER_KIND": kind})
            self._made[program, kind] = self._stack.enter_context(made)
        lasting = self._made[program, kind]
        try:  # what a test sets is its own
            yield replace(lasting, settings={**lasting.settings}, variables={**lasting.variables})
        finally:
            if supervisor := lasting.supervisor():
                services.running.add(supervisor.pid)

    def url(self, deployment: Deployment) -> str:
        """The address of MCP of a server over HTTP on it."""
        if deployment.folder not in self._urls:
            server = self._stack.enter_context(deployment.http())
            services.running.add(server.pid)
            self._urls[deployment.folder] = server.url
        return self._urls[deployment.folder]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()
