"""`worker`, `run-task`: doing the work in this process and not in a detached one."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from ..log_lines import set_up
from ..terminal_text import printable
from .exits import Exit, exit_of_state
from .output import print_json, say
from .place import Place, Where, opened
from .verb import TaskId, verb

if TYPE_CHECKING:
    from ..config import Settings
    from ..lifecycle import State
    from ..task import Task

#: How long a supervisor of an older release has for its end, after its tasks' grace.
_ENDS_S = 10.0


def add_to(app: typer.Typer) -> None:
    verb(
        app,
        panel="Running",
        without=("target", "owner", "all_owners", "as_json"),
        examples=[
            "backburner worker lab.py",
            "backburner worker lab.py --queue cpu_heavy=4 --queue gpu_small",
            "backburner worker pkg.lab:bb --store postgresql://db/tasks --idle-exit 10m",
        ],
    )(worker)
    verb(
        app,
        "run-task",
        panel="Running",
        without=("owner", "all_owners"),
        examples=["backburner run-task tsk_01J8WQ6JY7 --store postgresql://db/tasks"],
    )(run_task)


def worker(
    where: Where,
    target: Annotated[
        str | None,
        typer.Argument(metavar="TARGET", help="The app: lab.py or package.module:bb", show_default=False),
    ] = None,
    queues: Annotated[
        list[str] | None,
        typer.Option(
            "--queue", metavar="NAME", help="Work on this queue only, NAME or NAME=WORKERS; may be repeated"
        ),
    ] = None,
    idle_exit: Annotated[
        str, typer.Option(metavar="TIME", help="Leave after so long without work; 0: never")
    ] = "0",
    engine: Annotated[
        str, typer.Option(metavar="NAME", help="Be a worker of this engine: local, dramatiq or celery")
    ] = "local",
) -> None:
    """Work on the tasks of an app's store, in the foreground.

    There is one supervisor for each store and host. One that a server has started hands over: it
    finishes what it has under way, and this one takes all else. Ctrl-C or SIGTERM lets the tasks
    under way finish, for at most supervisor.drain_grace_s; a second one hands them back at once.
    """
    from ..times import duration_s

    with opened(dataclasses.replace(where, target=target), tools=True, create=True) as place:
        settings = place.settings.with_group(
            dataclasses.replace(place.settings.supervisor, idle_exit_s=duration_s(idle_exit, "idle_exit"))
        )
        settings = _only(settings, queues or ())
        if engine == "local":
            _supervise(place, settings)
        else:
            _work_for(engine, place, settings)


def _work_for(engine: str, place: Place, settings: Settings) -> None:
    """Become the worker of an engine outside: its own command, with the queues that it has here."""
    from ..config import ENGINES
    from ..engines.outside.choosing import room_of

    if engine not in ENGINES:
        raise typer.BadParameter(f"there is no engine {printable(engine)}; known: {', '.join(ENGINES)}")
    if engine not in settings.outside_engines:
        reason = f"no queue of this app is worked on by {engine}: set engine, or queues.NAME.engine"
        raise typer.BadParameter(reason)
    room = room_of(engine)
    if not hasattr(room, "work"):
        raise typer.BadParameter(f"{engine} starts its workers itself, by run-task")
    assert place.app is not None, "this verb needs an app"
    room.work(settings, place.data_dir, place.app.target)


def _only(settings: Settings, wanted: Sequence[str]) -> Settings:
    """The settings with workers for the wanted queues alone; for all if none is named."""
    if not wanted:
        return settings
    queues = {name: dataclasses.replace(queue, workers=0) for name, queue in settings.queues.items()}
    for text in wanted:
        name, _, count = text.partition("=")
        if name not in queues:
            raise typer.BadParameter(f"there is no queue {printable(name)}; known: {', '.join(queues)}")
        if count and not count.isdigit():
            raise typer.BadParameter(f"{printable(text)} is not NAME=WORKERS")
        workers = int(count) if count else settings.queues[name].workers or 1
        queues[name] = dataclasses.replace(queues[name], workers=workers)
    return dataclasses.replace(settings, queues=queues)


def _supervise(place: Place, settings: Settings) -> None:
    """Run the supervisor under its lock until a signal, or until it was idle for long."""
    from ..engines.local import SupervisorLock
    from ..engines.local.folder_owner import refuse_another_store
    from ..engines.local.succession import Succession, started_by_itself
    from ..supervise import supervise

    lock = SupervisorLock(place.data_dir)
    refuse_another_store(lock, place.store)
    found = lock.holder()
    patience_s = settings.supervisor.drain_grace_s + _ENDS_S
    if found and "version" not in found and started_by_itself(found):
        say(f"pid {found.get('pid')} is of a release that cannot hand over; it has {patience_s:g} s to end.")
    held = Succession(lock, started_by_itself).take(within_s=patience_s)
    if held is None:
        pid = (lock.holder() or {}).get("pid", "unknown")
        stop = place.command("stop")
        say(f"A worker of yours works on this store already: pid {pid}. To stop it: {stop}", "red")
        raise typer.Exit(Exit.TROUBLE)
    set_up(settings.log)
    assert place.app is not None, "this verb needs an app"
    slots = ", ".join(f"{name} {workers}" for name, workers in settings.local_workers.items())

    def greet(supervisor_id: str) -> None:
        say(f"{supervisor_id} works on {place.store.url}: {slots}. Ctrl-C lets running tasks finish.")
        if found:
            say(f"It takes over from pid {found.get('pid')}, which finishes what it has under way.")

    warm = [(place.app.target, "")]
    supervise(place.store, settings, place.data_dir, held, warm, on_ready=greet, detached=False)
    say("The worker has ended; what was under way is finished or back in its queue.")


def run_task(
    where: Where,
    task_id: TaskId,
    server: Annotated[
        str,
        typer.Option(metavar="URL", envvar="BACKBURNER_SERVER", help="Reach the task through this server"),
    ] = "",
    token: Annotated[
        str,
        typer.Option(
            metavar="TOKEN",
            envvar="BACKBURNER_TASK_TOKEN",
            help="For --server: made by `backburner token task`",
        ),
    ] = "",
) -> None:
    """Lease one task and run it here; for engines that give each task a machine of its own.

    A task that is not waiting, because another got it first, is left alone (exit code 0). With --server
    it needs no password of the store: only that server, a token for this task, and the app.
    """
    if server:
        found, leased = _run_behind(server, token, task_id, _target(where))
    else:
        with opened(where) as place:
            task, leased = _run_on_store(place, task_id)
            found = _Found(task.task_id, task.state, task.waits_for)
    _tell(found, leased, where.as_json)


class _Found(NamedTuple):
    """What is known of the task when the command ends."""

    task_id: str
    state: State
    waits_for: str | None = None


def _run_on_store(place: Place, task_id: str) -> tuple[Task, bool]:
    from .. import supervise

    task_id = place.whole_id(task_id)
    task = place.service.status(task_id, owner=None).task
    target = _target(place.where)
    leased = supervise.run_task(place.store, place.settings, place.data_dir, task, target=target)
    if not leased:
        place.store.take_back([task_id])  # a limit may hold it: it is handed out again when it is let go
    return place.store.get(task_id), leased


def _target(where: Where) -> str:
    """The app as it is found here, if somebody says so; else it is where the task has it."""
    from ..target import parse

    return parse(where.target) if where.target else ""


def _run_behind(server: str, token: str, task_id: str, target: str) -> tuple[_Found, bool]:
    """Run it through the door of a server; its files are here only as long as it runs."""
    from .. import supervise
    from ..config import ArtifactSettings, Settings
    from ..door.client import DoorStore, TaskEnded

    if not token:
        raise typer.BadParameter(
            "--server wants a token for the task: `backburner token task`, on the server"
        )
    with tempfile.TemporaryDirectory(prefix="backburner-run-") as folder:
        try:
            store = DoorStore(server, token, Path(folder))
        except TaskEnded as ended:
            return _Found(task_id, ended.state), False
        with contextlib.closing(store):
            if store.task.task_id != task_id:
                raise typer.BadParameter(f"the token is for {store.task.task_id}, and for no other task")
            # It is the server that keeps artifacts where the settings say: here they only pass through.
            settings = Settings.load("backburner").with_group(ArtifactSettings())
            leased = supervise.run_task(
                store, settings, Path(folder), store.task, store.supervisor_id, target=target
            )
            try:
                task = store.begin()
            except TaskEnded as ended:
                return _Found(task_id, ended.state), leased
            return _Found(task_id, task.state, task.waits_for), leased


def _tell(task: _Found, leased: bool, as_json: bool) -> None:
    task_id = task.task_id
    if as_json:
        print_json({"task_id": task_id, "state": str(task.state), "leased": leased})
    elif leased:
        say(f"{task_id} {task.state}")
    else:
        why = f"it is {task.state}" if task.waits_for is None else f"it is held. {task.waits_for}"
        say(f"{task_id} does not wait for a worker: {why.rstrip('.')}.")
    raise typer.Exit(exit_of_state(task.state) if leased else Exit.OK)
