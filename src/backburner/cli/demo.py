"""`backburner demo`: see it work, in under a minute, through a real MCP client and a real HTTP server."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from ..client import BackburnerClient, TaskHandle, Update
    from ..store import Store

_APP = "backburner.packs.demo"
_FILES = 20_000
_COPPER = """4

Cu 0.00 0.00 0.00
Cu 2.70 0.20 0.10
Cu 1.20 2.30 -0.15
Cu 1.40 0.70 2.20
"""


def add_to(app: typer.Typer) -> None:
    app.command()(demo)


def demo(
    folder: Annotated[
        Path | None, typer.Option(help="Where to keep the demo's files (default: a temporary folder)")
    ] = None,
) -> None:
    """Watch tasks run, die, come back, get cancelled, and be estimated better each time.

    On a terminal it then goes on serving until Ctrl-C, so that you can connect your own client.

    Example: backburner demo
    """
    import asyncio

    with contextlib.ExitStack() as stack:
        place = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="backburner-demo-")))
        place.mkdir(parents=True, exist_ok=True)
        show = Show(place.absolute(), kept=folder is not None)
        with show.server():
            asyncio.run(show.play())
            if sys.stdout.isatty():
                show.wait_for_ctrl_c()


class Show:
    """The demo: one scene after another."""

    def __init__(self, folder: Path, *, kept: bool) -> None:
        from rich.console import Console

        self._folder = folder
        self._kept = kept
        self._tree = folder / "tree"
        self._store_url = f"sqlite:///{folder / 'demo.db'}"
        self._url = f"http://127.0.0.1:{_free_port()}"
        self._console: Console = Console(highlight=False)

    @contextlib.contextmanager
    def server(self) -> Iterator[None]:
        """The MCP server, as a process of its own; at the end its supervisor is told to leave too."""
        command = [sys.executable, "-m", "backburner.cli", "serve", _APP, "--http", self._url[7:]]
        environment = {
            **os.environ,
            "BACKBURNER_STORE": self._store_url,
            "BACKBURNER_SUPERVISOR__IDLE_EXIT_S": "5",
        }
        environment["XDG_STATE_HOME"] = str(self._folder)
        with (self._folder / "server.log").open("w") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            try:
                _wait_for_port(self._url, process, self._folder / "server.log")
                yield
            finally:
                process.terminate()
                process.wait(15)
                _end_supervisor(self._folder / "demo.db.d")

    async def play(self) -> None:
        from ..client import BackburnerClient
        from ..packs.demo import HAS_SCIENCE

        async with BackburnerClient(f"{self._url}/mcp") as client:
            self._say(
                f"A server with slow tools runs at [b]{self._url}/mcp[/b], its tasks are in {self._store_url}"
            )
            await self._sync(client)
            if HAS_SCIENCE:
                await self._relax(client)
            await self._survive(client)
            await self._cancel(client)
        self._where_things_are()

    # -- scenes

    async def _sync(self, client: BackburnerClient) -> None:
        _make_tree(self._tree, _FILES)
        self._title(
            f"A folder of {_FILES:,} files is synced three times: estimates learn, and so does the tool"
        )
        for turn in ("first", "second", "third"):
            handle = await client.start("wksm_monitor_sync", path=str(self._tree))
            estimate = self._task(handle.task_id).estimate_s
            result = await self._watch(handle, f"{turn} sync")
            self._say(
                f"  {turn} time: expected {estimate or 0:.1f} s, took {result['duration_seconds']:.2f} s, "
                f"{result['files_updated']:,} of {result['files_processed']:,} files updated"
            )

    async def _relax(self, client: BackburnerClient) -> None:
        self._title("A cluster of copper atoms is relaxed, with its trajectory and a plot as artifacts")
        handle = await client.start("run_geometry_optimization", structure=_COPPER, fmax=0.01)
        await self._watch(handle, "relaxation")
        for artifact in await handle.artifacts():
            path = await artifact.download(self._folder)
            self._say(
                f"  {artifact.name}: {artifact.size_bytes:,} bytes, sha256 {artifact.sha256[:12]}… → {path}"
            )

    async def _survive(self, client: BackburnerClient) -> None:
        self._title("A task is killed with SIGKILL half way, and goes on from its last checkpoint")
        handle = await client.start("count_primes", up_to=40_000)
        killed: list[int] = []

        def kill_half_way(update: Update) -> None:
            if not killed and update.progress and (update.progress.percent or 0) >= 50:
                killed.append(self._read("attempts", handle.task_id)[0].pid)
                os.kill(killed[0], signal.SIGKILL)
                self._say(f"  [red]kill -9 {killed[0]}[/red]")

        result = await self._watch(handle, "count_primes", kill_half_way)
        self._say(
            f"  {result['primes']:,} primes, counted in {result['attempts']} attempts; "
            f"the last one began at {result['began_at']:,}"
        )
        for event in self._events(handle.task_id):
            self._say(f"    {event}")

    async def _cancel(self, client: BackburnerClient) -> None:
        import asyncio

        from ..client import TaskWasCancelled

        self._title("A task without an end is cancelled")
        handle = await client.start("dig_for_gold")
        began = time.monotonic()

        def stop(update: Update) -> None:
            if time.monotonic() - began > 1:
                asyncio.get_running_loop().create_task(handle.cancel())

        try:
            await self._watch(handle, "dig_for_gold", stop)
        except TaskWasCancelled:
            self._say("  cancelled: the tool was asked first, and would have been killed had it not listened")

    def _where_things_are(self) -> None:
        self._title("Where things are")
        self._say(f"  the store        {self._store_url}")
        self._say(f"  task folders     {self._folder / 'demo.db.d' / 'tasks'}")
        self._say(f"  what happened    backburner ls --store {self._store_url}")
        if not self._kept:
            self._say("  All of it is gone when the demo ends; keep it with: backburner demo --folder demo")

    def wait_for_ctrl_c(self) -> None:
        self._say(f"\nServing {self._url}/mcp until Ctrl-C.")
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()

    # -- telling

    def _say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)

    def _title(self, text: str) -> None:
        self._console.print(f"\n[b cyan]{text}[/]", soft_wrap=True)

    async def _watch(self, handle: TaskHandle, name: str, also: Any = None) -> Any:
        """A live bar until the task is over; then its result. Raises what the call would have raised."""
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        columns = (
            TextColumn("  {task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[said]}"),
        )
        with Progress(*columns, console=self._console, disable=not self._console.is_terminal) as bar:
            row = bar.add_task(name, total=100, said="")

            def update(news: Update) -> None:
                _move(bar, row, news)
                if also is not None:
                    also(news)

            result = await handle.result(update)
            bar.update(row, completed=100, said="done")
        if result.is_error:
            raise RuntimeError(f"{name} failed: {result.content}")
        return result.structured_content

    # -- looking behind the scenes

    def _task(self, task_id: str) -> Any:
        return self._read("get", task_id)

    def _events(self, task_id: str) -> Iterator[str]:
        for event in self._read("events", task_id):
            why = f"  {event.detail['message']}" if "message" in event.detail else ""
            yield f"{event.signal:>8} → {event.to_state}{why}"

    def _read(self, verb: str, task_id: str) -> Any:
        from ..stores import open_store

        store: Store = open_store(self._store_url)
        try:
            return getattr(store, verb)(task_id)
        finally:
            store.close()


def _move(bar: Progress, row: TaskID, news: Update) -> None:
    progress = news.progress
    bar.update(
        row,
        completed=progress.percent if progress and progress.percent is not None else None,
        said=(progress.message if progress and progress.message else news.message) or "",
    )


def _make_tree(root: Path, files: int) -> None:
    for number in range(files):
        path = root / f"folder{number % 40:02d}" / f"note{number:05d}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# Note {number}\n\nSee [[note{(number * 7) % files:05d}]].\n")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for_port(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    address = ("127.0.0.1", int(url.rpartition(":")[2]))
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError), socket.create_connection(address, 1):
            return
        time.sleep(0.05)
    raise typer.Exit(_complain(f"the server did not start; its log says:\n{log.read_text()}"))


def _complain(text: str) -> int:
    print(f"backburner: {text}", file=sys.stderr)
    return 4


def _end_supervisor(data_dir: Path) -> None:
    from ..engines.local import SupervisorLock

    holder = SupervisorLock(data_dir).holder() or {}
    if isinstance(pid := holder.get("pid"), int):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
