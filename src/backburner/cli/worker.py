"""`worker`, `run-task`: doing the work in this process and not in a detached one."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ..terminal_text import printable
from .exits import Exit, exit_of_state
from .output import print_json, say
from .place import Place, Where, opened
from .verb import TaskId, verb

if TYPE_CHECKING:
    from ..config import Settings

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
        _supervise(place, _only(settings, queues or ()))


def _only(settings: Settings, wanted: Sequence[str]) -> Settings:
    """The settings with workers for the wanted queues alone; for all if none is named."""
    from ..config import Queue

    if not wanted:
        return settings
    queues = {name: Queue(0, queue.max_length) for name, queue in settings.queues.items()}
    for text in wanted:
        name, _, count = text.partition("=")
        if name not in queues:
            raise typer.BadParameter(f"there is no queue {printable(name)}; known: {', '.join(queues)}")
        if count and not count.isdigit():
            raise typer.BadParameter(f"{printable(text)} is not NAME=WORKERS")
        workers = int(count) if count else settings.queues[name].workers
        queues[name] = Queue(workers, queues[name].max_length)
    return dataclasses.replace(settings, queues=queues)


def _supervise(place: Place, settings: Settings) -> None:
    """Run the supervisor under its lock until a signal, or until it was idle for long."""
    from ..engines.local import SupervisorLock
    from ..engines.local.succession import Succession, started_by_itself
    from ..supervise import supervise

    lock = SupervisorLock(place.data_dir)
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
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    assert place.app is not None, "this verb needs an app"
    slots = ", ".join(f"{name} {queue.workers}" for name, queue in settings.queues.items() if queue.workers)

    def greet(supervisor_id: str) -> None:
        say(f"{supervisor_id} works on {place.store.url}: {slots}. Ctrl-C lets running tasks finish.")
        if found:
            say(f"It takes over from pid {found.get('pid')}, which finishes what it has under way.")

    warm = [(place.app.target, "")]
    supervise(place.store, settings, place.data_dir, held, warm, on_ready=greet, detached=False)
    say("The worker has ended; what was under way is finished or back in its queue.")


def run_task(place: Place, task_id: TaskId) -> None:
    """Lease one task and run it here; for engines that give each task a machine of its own.

    A task that is not waiting, because another got it first, is left alone (exit code 0).
    """
    from .. import supervise

    task = place.service.status(task_id, owner=None).task
    leased = supervise.run_task(place.store, place.settings, place.data_dir, task)
    task = place.store.get(task_id)
    if place.as_json:
        print_json({"task_id": task_id, "state": str(task.state), "leased": leased})
    elif leased:
        say(f"{task_id} {task.state}")
    else:
        say(f"{task_id} does not wait for a worker: it is {task.state}.")
    raise typer.Exit(exit_of_state(task.state) if leased else Exit.OK)
