"""`status`, `stop`, `restart`: the supervisor of this host, and what it has under way."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..records import record
from .exits import Exit
from .live_workers import asking_tasks, leased_tasks, supervision
from .output import (
    age,
    cell,
    field_table,
    moment,
    print_json,
    say,
    show,
    show_line,
    span,
    state_cell,
    table,
    took_s,
)
from .place import Place
from .verb import verb

if TYPE_CHECKING:
    from ..engines.local import Standing, SupervisorLock
    from ..engines.local.succession import Holder
    from ..task import Task

#: How long a supervisor has for its end when its tasks are off its hands.
_ENDS_S = 15.0
_SIGNS_S = 5.0


def add_to(app: typer.Typer) -> None:
    verb(
        app,
        panel="Running",
        without=("owner", "all_owners"),
        examples=["backburner status -t lab.py", "backburner status --store sqlite:///lab.db --json"],
    )(status)
    verb(
        app,
        panel="Running",
        without=("owner", "all_owners"),
        examples=["backburner stop -t lab.py", "backburner stop -t lab.py --now"],
    )(stop)
    verb(
        app,
        panel="Running",
        tools=True,
        create=True,
        without=("owner", "all_owners"),
        examples=["backburner restart -t lab.py"],
    )(restart)


def status(place: Place) -> None:
    """Show the supervisor of this host, what runs, what waits, and who waits for an answer.

    Exit code 0 when there is one and it is well, 1 when there is none, 4 when it is in trouble.
    """
    found = supervision(place)
    standing, running, asking = found.standing, list(leased_tasks(place)), list(asking_tasks(place))
    retired = [{"pid": one.get("pid"), "version": one.get("version")} for one in _lock(place).retired()]
    queues = [one for one in place.operator.queues() if one["queued"] or one["running"] or one["workers"]]
    if place.as_json:
        shown = {
            "supervisor": {**record(standing), "trouble": found.trouble and str(found.trouble)},
            "retired": retired,
            "queues": queues,
            "tasks": record(running),
            "questions": [one.record() for one in asking],
        }
        print_json(shown)
    else:
        show(field_table([("supervisor", _described(standing)), ("trouble", found.trouble)]))
        for each in retired:
            show(cell(f"pid {each['pid']} has retired, and finishes what it has under way"))
        _show_work(queues, running)
        for one in asking:
            show_line(cell(f"{one.message}: {one.command}", "magenta"))
    if standing.state == "absent":
        raise typer.Exit(Exit.TASK_FAILED)
    raise typer.Exit(Exit.OK if found.trouble is None else Exit.TROUBLE)


def _show_work(queues: list[dict[str, Any]], running: list[Task]) -> None:
    if queues:
        rows = [[one["queue"], one["queued"], one["running"], one["workers"]] for one in queues]
        show("", table(["QUEUE", "WAITING", "RUNNING", "WORKERS"], rows))
    if running:
        tasks = [[one.task_id, state_cell(one.state), one.tool_name, span(took_s(one))] for one in running]
        show("", table(["TASK", "STATE", "TOOL", "TOOK"], tasks, whole=("TASK", "STATE")))


def _described(standing: Standing) -> str:
    if standing.state == "absent":
        return "none; the next task starts one"
    kind = "started by itself" if standing.detached else "in the foreground"
    since = (
        "" if standing.since_at is None else f" since {moment(standing.since_at)} ({age(standing.since_at)})"
    )
    return f"pid {standing.pid} is {standing.state}{since}, version {standing.version or 'unknown'}, {kind}"


def stop(
    place: Place,
    now: Annotated[bool, typer.Option("--now", help="Hand tasks back to their queue at once")] = False,
) -> None:
    """Stop the supervisor of this host, and wait for its end.

    What runs may finish, for at most supervisor.drain_grace_s, and goes back to its queue then; nothing
    is lost. A server of the app starts another one when it has a task to run.
    """
    lock = _lock(place)
    told = [one for one in [_signed(lock), *lock.retired()] if one]
    patience_s = 0.0 if now else place.settings.supervisor.drain_grace_s
    left = [one["pid"] for one in _stop_all(told, at_once=now, within_s=patience_s + _ENDS_S)]
    after = lock.holder()
    if after in told and after is not None and after["pid"] not in left:
        left.append(after["pid"])  # its process is not to be seen from here
    stopped = [one["pid"] for one in told if one["pid"] not in left]
    if place.as_json:
        print_json({"stopped": stopped, "not_stopped": left})
    elif not told:
        say("No supervisor works on this store.")
    for pid in () if place.as_json else stopped:
        say(f"pid {pid} has ended; what was under way is finished or back in its queue.")
    for pid in left:
        say(f"pid {pid} has not ended: it hangs, or is not to be reached from here. See: ps {pid}", "red")
    if after and after.get("pid") not in left:
        say("Another one has started: a server of the app is there, and tasks wait.", "yellow")
    raise typer.Exit(Exit.TROUBLE if left else Exit.OK)


def _stop_all(told: list[Holder], *, at_once: bool, within_s: float) -> list[Holder]:
    """Tell them all, then wait; those that are not gone by then."""
    import signal

    from ..engines.local.linux import is_running, signal_process

    numbers = (signal.SIGTERM, signal.SIGINT) if at_once else (signal.SIGTERM,)  # a second one means: at once
    for one in told:
        signal_process(one["pid"], one["started"], *numbers)
    until = time.monotonic() + within_s
    left = told
    while left and time.monotonic() < until:
        left = [
            one
            for one in left
            if is_running(one["pid"], one["started"])
            and not signal_process(one["pid"], one["started"], wait_s=0.1)
        ]
    return left


def restart(place: Place) -> None:
    """Put a new supervisor in the place of the one that is there, or start one.

    The other finishes what it has under way, however long it takes, and ends then; the new one takes all
    else. One that you started with `backburner worker` is left alone: start that anew yourself.
    """
    from ..engines.local import LocalEngine

    assert place.app is not None, "this verb needs an app"
    engine = place.app.engine
    assert isinstance(engine, LocalEngine), "there is no other"
    before = _lock(place).holder()
    pid = engine.restart()
    if pid is None:
        holder = (_lock(place).holder() or {}).get("pid")
        say(f"pid {holder} does not give its place up. If you started it, start it anew yourself.", "red")
        raise typer.Exit(Exit.TROUBLE)
    retired = before.get("pid") if before else None
    if place.as_json:
        print_json({"pid": pid, "retired": retired})
    elif retired is None:
        say(f"pid {pid} has started.")
    else:
        say(f"pid {pid} has started; pid {retired} finishes what it has under way.")


def _lock(place: Place) -> SupervisorLock:
    from ..engines.local import SupervisorLock

    return SupervisorLock(place.data_dir)


def _signed(lock: SupervisorLock) -> Holder | None:
    """Who holds the lock; one that is about to start gets a moment to sign."""
    until = time.monotonic() + _SIGNS_S
    while True:
        found: dict[str, Any] | None = lock.holder()
        if not found or isinstance(found.get("pid"), int):
            return found
        if time.monotonic() > until:
            return None
        time.sleep(0.05)
