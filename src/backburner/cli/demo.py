"""The `demo` command: a tour through a real MCP client and a real HTTP server, in under a minute."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .command import SERVERS, Exit, command

if TYPE_CHECKING:
    from ..client import BackburnerClient, TaskHandle, Update


_FILES = 20_000
_COPPER = """4

Cu 0.00 0.00 0.00
Cu 2.70 0.20 0.10
Cu 1.20 2.30 -0.15
Cu 1.40 0.70 2.20
"""


@command(panel=SERVERS, examples=["backburner demo", "backburner demo --folder demo"])
def demo(
    folder: Annotated[
        Path | None, typer.Option(help="Keep the files of the demo here (default: a temporary folder)")
    ] = None,
) -> None:
    """Show tasks that run, survive a kill, are cancelled and get better estimates.

    On a terminal it then serves until Ctrl-C, so that you can connect your own client.
    """
    with contextlib.ExitStack() as stack:
        place = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="backburner-demo-")))
        place.mkdir(parents=True, exist_ok=True)
        tour = Demo(place.absolute(), temporary=folder is None)
        with tour.server():
            asyncio.run(tour.play())
            if sys.stdout.isatty():
                tour.wait_for_ctrl_c()


class Demo:
    """The demo: a server, and one scene after another."""

    def __init__(self, folder: Path, *, temporary: bool) -> None:
        from rich.console import Console

        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port: int = probe.getsockname()[1]
        self._folder = folder
        self._temporary = temporary
        self._store_url = f"sqlite:///{folder / 'demo.db'}"
        self._url = f"http://127.0.0.1:{self._port}/mcp"
        self._console = Console(highlight=False)

    @contextlib.contextmanager
    def server(self) -> Iterator[None]:
        """Run the MCP server as a process, and stop its supervisor at the end."""
        address = f"127.0.0.1:{self._port}"
        command = [
            sys.executable,
            "-m",
            "backburner.cli",
            "serve",
            "backburner.packs.demo",
            "--http",
            address,
        ]
        environment = {
            **os.environ,
            "BACKBURNER_STORE": self._store_url,
            "BACKBURNER_SUPERVISOR__IDLE_EXIT_S": "5",
            "XDG_STATE_HOME": str(self._folder),
        }
        with (self._folder / "server.log").open("w") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            try:
                self._wait_for_server(process)
                yield
            finally:
                process.terminate()
                process.wait(15)
                self._stop_supervisor()

    def _wait_for_server(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1):
                return
            time.sleep(0.05)
        log = (self._folder / "server.log").read_text()
        print(f"backburner: the server did not start; its log:\n{log}", file=sys.stderr)
        raise typer.Exit(Exit.TROUBLE)

    def _stop_supervisor(self) -> None:
        from ..engines.local import SupervisorLock

        holder = SupervisorLock(self._folder / "demo.db.d").holder() or {}
        if isinstance(pid := holder.get("pid"), int):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    async def play(self) -> None:
        from ..client import BackburnerClient
        from ..packs.demo import HAS_SCIENCE

        async with BackburnerClient(self._url) as client:
            self._say(f"A server with slow tools runs at [b]{self._url}[/b]. Its store is {self._store_url}")
            await self._sync(client)
            if HAS_SCIENCE:
                await self._relax(client)
            await self._survive(client)
            await self._cancel(client)
        self._title("Files")
        self._say(f"  store         {self._store_url}")
        self._say(f"  task folders  {self._folder / 'demo.db.d' / 'tasks'}")
        self._say(f"  history       backburner ls --store {self._store_url}")
        if self._temporary:
            self._say("  They are deleted at the end; keep them with: backburner demo --folder demo")

    def wait_for_ctrl_c(self) -> None:
        self._say(f"\nServing {self._url} until Ctrl-C.")
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()

    async def _sync(self, client: BackburnerClient) -> None:
        tree = self._folder / "tree"
        for number in range(_FILES):
            path = tree / f"folder{number % 40:02d}" / f"note{number:05d}.md"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"# Note {number}\n\nSee [[note{(number * 7) % _FILES:05d}]].\n")
        self._title(f"Sync a folder of {_FILES:,} files three times: the estimates improve")
        for turn in ("first", "second", "third"):
            handle = await client.start("wksm_monitor_sync", path=str(tree))
            estimate = self._read("get", handle.task_id).estimate_s
            result = await self._watch(handle, f"{turn} sync")
            self._say(
                f"  {turn} time: expected {estimate or 0:.1f} s, took {result['duration_seconds']:.2f} s, "
                f"{result['files_updated']:,} of {result['files_processed']:,} files updated"
            )

    async def _relax(self, client: BackburnerClient) -> None:
        self._title("Relax a cluster of copper atoms, with its trajectory and a plot as artifacts")
        handle = await client.start("run_geometry_optimization", structure=_COPPER, fmax=0.01)
        await self._watch(handle, "relaxation")
        for artifact in await handle.artifacts():
            path = await artifact.download(self._folder)
            self._say(
                f"  {artifact.name}: {artifact.size_bytes:,} bytes, sha256 {artifact.sha256[:12]}… → {path}"
            )

    async def _survive(self, client: BackburnerClient) -> None:
        self._title("Kill a task with SIGKILL halfway: it continues from its last checkpoint")
        handle = await client.start("count_primes", up_to=40_000)
        killed: list[int] = []

        def kill_halfway(update: Update) -> None:
            if not killed and update.progress and (update.progress.percent or 0) >= 50:
                killed.append(self._read("attempts", handle.task_id)[0].pid)
                os.kill(killed[0], signal.SIGKILL)
                self._say(f"  [red]kill -9 {killed[0]}[/red]")

        result = await self._watch(handle, "count_primes", kill_halfway)
        self._say(
            f"  {result['primes']:,} primes in {result['attempts']} attempts; "
            f"the last attempt started at {result['began_at']:,}"
        )
        for event in self._read("events", handle.task_id):
            why = f"  {event.detail['message']}" if "message" in event.detail else ""
            self._say(f"    {event.signal:>8} → {event.to_state}{why}")

    async def _cancel(self, client: BackburnerClient) -> None:
        from ..client import TaskWasCancelled

        self._title("Cancel a task that never ends")
        handle = await client.start("dig_for_gold")
        began = time.monotonic()

        def stop(update: Update) -> None:
            if time.monotonic() - began > 1:
                asyncio.get_running_loop().create_task(handle.cancel())

        try:
            await self._watch(handle, "dig_for_gold", stop)
        except TaskWasCancelled:
            self._say("  cancelled: the tool stopped when asked; otherwise its process would be killed")

    def _say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)

    def _title(self, text: str) -> None:
        self._console.print(f"\n[b cyan]{text}[/]", soft_wrap=True)

    async def _watch(
        self, handle: TaskHandle, name: str, on_update: Callable[[Update], None] | None = None
    ) -> Any:
        """Show a live bar until the task ends, and return its result. Raises the error of the call."""
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        columns = (
            TextColumn("  {task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[message]}"),
        )
        with Progress(*columns, console=self._console, disable=not self._console.is_terminal) as bar:
            row = bar.add_task(name, total=100, message="")

            def update(news: Update) -> None:
                progress = news.progress
                percent = progress.percent if progress else None
                message = (progress.message if progress else None) or news.message or ""
                bar.update(row, completed=percent, message=message)
                if on_update is not None:
                    on_update(news)

            result = await handle.result(update)
            bar.update(row, completed=100, message="done")
        if result.is_error:
            raise RuntimeError(f"{name} failed: {result.content}")
        return result.structured_content

    def _read(self, query: str, task_id: str) -> Any:
        from ..store import open_store

        with contextlib.closing(open_store(self._store_url)) as store:
            return getattr(store, query)(task_id)
