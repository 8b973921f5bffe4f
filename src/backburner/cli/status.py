"""Commands that show and control a running system: `status`, `tools`, `queue` and `supervisor`."""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.lifecycle import LEASED, TERMINAL, State
from ..core.text import printable
from ..core.times import from_iso
from ..service.records import status_record
from .command import OPERATIONS, SERVERS, Exit, command, group
from .output import (
    age,
    cell,
    field_table,
    moment,
    print_json,
    say,
    show,
    show_line,
    show_live,
    span,
    state_cell,
    stdout,
    table,
    took_s,
)
from .place import Place, asking_tasks
from .tasks import progress_text, shown_id

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from ..engines.local import SupervisorLock
    from ..engines.local.lock import Holder
    from ..service.tasks import TaskStatus
    from .place import Asking


_ACTIVE = frozenset(State) - TERMINAL
_MAX_TASKS = 200
_MIN_ROWS = 5
#: The period of the completion rate in the live view, and the number of its bars.
_RATE_S = 60.0
_RATE_BARS = 30
_BARS = " ▁▂▃▄▅▆▇█"
_MAX_SLOTS = 16


@dataclass(frozen=True)
class Overview:
    """A snapshot of the system."""

    supervisor: Mapping[str, Any]
    states: Mapping[str, int]
    queues: Sequence[Mapping[str, Any]]
    workers: Sequence[Mapping[str, Any]]
    tasks: Sequence[TaskStatus]
    latest: Sequence[TaskStatus]

    @classmethod
    def read(cls, place: Place) -> Overview:
        def listed(states: Collection[State], limit: int, *, oldest_first: bool) -> list[TaskStatus]:
            page = place.service.list(
                owner=None, states=sorted(states), limit=limit, oldest_first=oldest_first
            )
            return [place.service.view(task) for task in page.tasks]

        return cls(
            place.operator.supervisor(),
            place.operator.states(None),
            place.operator.queues(),
            place.operator.workers(),
            [
                *listed(LEASED, _MAX_TASKS, oldest_first=True),
                *listed(_ACTIVE - LEASED, _MAX_TASKS, oldest_first=True),
            ],
            listed(TERMINAL, _MIN_ROWS, oldest_first=False),
        )

    @property
    def exit(self) -> Exit:
        if self.supervisor["state"] == "absent":
            return Exit.TASK_FAILED
        return Exit.OK if self.supervisor["trouble"] is None else Exit.TROUBLE


@command(
    panel=OPERATIONS,
    owner=False,
    examples=[
        "backburner status -t lab.py",
        "backburner status --watch",
        "backburner status --json | jq '.workers[].current_task_id'",
    ],
    remote=True,
)
def status(
    place: Place,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Update the view until q or Ctrl-C")] = False,
) -> None:
    """Show the supervisor, tasks, queues, workers, runtimes and clients, for all owners.

    RUNTIMES covers the latest successful runs of each tool. CLIENTS lists hosts that gave up on a call: WALL
    is their total timeout, IDLE their timeout without progress; FROM is the source of these limits.

    The exit code is 0 if a supervisor is running and healthy, 1 if there is none, and 4 if it has a problem.
    """
    if watch and not place.as_json and stdout().is_terminal:
        rate = Rate()
        show_live(place, lambda: _live_view(place, Overview.read(place), rate, stdout().height))
        return
    seen = Overview.read(place)
    runtimes, clients = place.operator.runtimes(None), place.operator.clients()
    here = not place.where.server
    asking = list(asking_tasks(place)) if here else []
    retired = _lock(place).retired() if here else []
    if place.as_json:
        print_json(
            {
                "supervisor": seen.supervisor,
                "retired": [{"pid": one.get("pid"), "version": one.get("version")} for one in retired],
                "states": seen.states,
                "queues": seen.queues,
                "workers": seen.workers,
                "tasks": [status_record(one) for one in seen.tasks],
                "latest": [status_record(one) for one in seen.latest],
                "questions": [one.record() for one in asking],
                "tools": runtimes,
                "clients": clients,
            }
        )
    else:
        _show_sections(place, seen, retired, asking, runtimes, clients)
    raise typer.Exit(seen.exit)


def _show_sections(
    place: Place,
    seen: Overview,
    retired: Iterable[Holder],
    asking: Iterable[Asking],
    runtimes: list[dict[str, Any]],
    clients: list[dict[str, Any]],
) -> None:
    show(
        field_table(
            [
                ("store", place.name),
                ("supervisor", _described(seen.supervisor)),
                ("problem", seen.supervisor["trouble"]),
                *(("retired", f"pid {one.get('pid')} finishes its running tasks") for one in retired),
                ("tasks", _counts(seen) if any(seen.states.values()) else "none"),
            ]
        )
    )
    show("", _queue_table(seen.queues))
    if seen.workers:
        show("", _worker_table(place, seen.workers))
    for tasks in (seen.tasks, seen.latest):
        if tasks:
            show("", _task_table(place, tasks))
    for one in asking:
        show_line(cell(f"{one.message}: {one.command}", "magenta"))
    if runtimes:
        rows = [
            [one["tool_name"], one["runs"], span(one["median_s"]), span(one["p95_s"])] for one in runtimes
        ]
        show("", table(["TOOL", "LATEST RUNS", "MEDIAN", "95%"], rows))
    if clients:
        show("", _client_table(clients))


def _described(supervisor: Mapping[str, Any]) -> str:
    if supervisor["state"] == "absent":
        return "none; the next task starts one"
    if supervisor["pid"] is None:  # the token may not see machines
        return str(supervisor["state"])
    started = "started on demand" if supervisor["detached"] else "in the foreground"
    since = None if supervisor["since_at"] is None else from_iso(supervisor["since_at"])
    when = "" if since is None else f" since {moment(since)} ({age(since)})"
    version = supervisor["version"] or "unknown"
    return f"pid {supervisor['pid']} is {supervisor['state']}{when}, version {version}, {started}"


def _counts(seen: Overview) -> Text:
    line = cell("")
    for state in State:
        if seen.states.get(state):
            line.append_text(state_cell(state)).append(f" {seen.states[state]}  ")
    return line


def _queue_table(queues: Iterable[Mapping[str, Any]]) -> Any:
    rows = [
        [
            one["queue"],
            one["queued"],
            one["running"],
            _slots(one["workers"], one["running"]) if one["paused_at"] is None else cell("paused", "yellow"),
            "-"
            if not one["max_length"]
            else f"{100 * one['queued'] / one['max_length']:.0f}% of {one['max_length']}",
        ]
        for one in queues
    ]
    return table(
        ["QUEUE", "QUEUED", "RUNNING", "WORKERS", "FULL"], rows, whole=("QUEUE", "QUEUED", "RUNNING")
    )


def _slots(workers: int, leased: int) -> Text:
    """Return a mark for each worker, filled for a busy one."""
    busy = min(workers, leased)
    if workers > _MAX_SLOTS:
        return cell(f"{busy} of {workers} busy", "cyan" if busy else "dim")
    return cell("■" * busy, "cyan").append("□" * (workers - busy), "dim")


def _worker_table(place: Place, workers: Iterable[Mapping[str, Any]]) -> Any:
    """Return the workers; idle workers of a queue without a process share a row."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for one in workers:
        idle = one["pid"] is None and one["current_task_id"] is None and one["alive"]
        key = (one["supervisor_id"] or "", one["queue"], one["state"]) if idle else (one["worker_id"],)
        groups.setdefault(key, []).append(one)
    rows = [
        [
            one["worker_id"] if not others else f"{1 + len(others)} workers",
            one["host"],
            one["queue"],
            cell(one["state"]) if one["alive"] else cell("lost", "red"),
            one["pid"],
            None if one["last_heartbeat"] is None else f"{age(from_iso(one['last_heartbeat']))} ago",
            None if one["current_task_id"] is None else shown_id(place, one["current_task_id"]),
        ]
        for one, *others in groups.values()
    ]
    columns = ["WORKER", "HOST", "QUEUE", "STATE", "PID", "HEARTBEAT", "TASK"]
    return table(columns, rows, whole=("WORKER", "STATE", "TASK"))


def _task_table(place: Place, statuses: Sequence[TaskStatus]) -> Any:
    rows = [
        [
            shown_id(place, status.task_id),
            state_cell(status.task.state),
            status.task.tool_name,
            age(status.task.submitted_at) if status.task.started_at is None else span(took_s(status.task)),
            _bar(status),
            progress_text(status),
        ]
        for status in statuses
    ]
    return table(["TASK", "STATE", "TOOL", "FOR", "", "PROGRESS"], rows, whole=("TASK", "STATE"))


def _bar(status: TaskStatus) -> Text:
    progress = status.task.progress
    if status.task.finished or progress is None or progress.percent is None:
        return cell("")
    full = round(max(0.0, min(100.0, progress.percent)) / 10)
    return cell("━" * full, "cyan").append("╌" * (10 - full), "dim")


def _client_table(clients: Iterable[Mapping[str, Any]]) -> Any:
    def limit(seconds: float | None) -> str:
        return "never" if seconds is None else span(seconds)

    rows = [
        [
            one["name"],
            one["version"],
            one["transport"],
            limit(one["wall_s"]),
            limit(one["idle_s"]),
            "yes" if one["restarts"] else "no",
            one["source"],
            one["time_outs"],
        ]
        for one in clients
    ]
    columns = ["CLIENT", "VERSION", "TRANSPORT", "WALL", "IDLE", "PROGRESS RESETS", "FROM", "TIMEOUTS"]
    return table(columns, rows, whole=("CLIENT", "WALL", "FROM"))


class Rate:
    """Completions per second in the last minute."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int]] = deque()

    def count(self, ended: int) -> None:
        now = time.monotonic()
        before = self._counts[-1][1] if self._counts else ended
        if ended < before:  # tasks were deleted
            self._counts = deque((at, number - before + ended) for at, number in self._counts)
        self._counts.append((now, ended))
        while now - self._counts[0][0] > _RATE_S:
            self._counts.popleft()

    @property
    def per_second(self) -> float:
        (begun, first), (now, last) = self._counts[0], self._counts[-1]
        return (last - first) / (now - begun) if now > begun else 0.0

    @property
    def bars(self) -> str:
        """The last minute as a row of bars, oldest first."""
        now = self._counts[-1][0]
        steps = [0] * _RATE_BARS
        for (_, before), (at, number) in zip(self._counts, list(self._counts)[1:], strict=False):
            steps[max(0, _RATE_BARS - 1 - int((now - at) * _RATE_BARS / _RATE_S))] += number - before
        most = max(steps)
        return "".join(_BARS[-(-step * (len(_BARS) - 1) // most)] if most else " " for step in steps)


def _live_view(place: Place, seen: Overview, rate: Rate, height: int) -> RenderableType:
    from rich.console import Group

    supervisor = cell(f"supervisor {seen.supervisor['state']}", "green")
    if seen.supervisor["trouble"] is not None:
        supervisor = cell(seen.supervisor["trouble"], "red")
    headline = cell("backburner ", "bold").append(printable(place.name))
    headline.append(time.strftime("  %H:%M:%S  "), "dim").append_text(supervisor)
    rate.count(sum(seen.states.get(state, 0) for state in TERMINAL))
    counts = _counts(seen).append(f"ended {rate.per_second:.1f}/s ").append(rate.bars, "green")
    for line in (headline, counts):
        line.no_wrap, line.overflow = True, "ellipsis"
    queues = _queue_table(
        one for one in seen.queues if one["queued"] or one["running"] or one["workers"] or one["paused_at"]
    )
    rows = max(_MIN_ROWS, height - queues.row_count - 6)
    shown = seen.tasks[:rows]
    below = [_task_table(place, shown)] if shown else [cell("No active tasks.", "dim")]
    if more := sum(seen.states.get(state, 0) for state in _ACTIVE) - len(shown):
        below.append(cell(f"… and {more} more", "dim"))
    if seen.latest and len(shown) + len(seen.latest) + 3 <= rows:
        below += [cell(""), _task_table(place, seen.latest)]
    return Group(headline, counts, cell(""), queues, cell(""), *below)


@command(
    panel=OPERATIONS,
    needs_app=True,
    owner=False,
    examples=["backburner tools -t lab.py", "backburner tools --json | jq '.tools[].input_schema'"],
    remote=True,
)
def tools(place: Place) -> None:
    """List the slow tools of an app with their inputs."""
    found = place.operator.tools()
    if place.as_json:
        print_json({"tools": found})
        return
    if not found:
        say("The app has no slow tools.")
        return
    rows = [
        [
            one["tool_name"],
            one["queue"],
            span(one["max_runtime_s"]),
            _inputs(one["input_schema"]),
            one["description"].partition("\n")[0],
        ]
        for one in found
    ]
    show(table(["TOOL", "QUEUE", "LIMIT", "INPUTS", ""], rows, whole=("TOOL",)))


def _inputs(schema: dict[str, Any]) -> str:
    needed = schema.get("required") or ()
    names = schema.get("properties") or {}
    return printable(" ".join(name if name in needed else f"({name})" for name in names)) or "-"


Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue", show_default=False)]
queue_commands = group("queue", "Pause and resume queues.", OPERATIONS)


@command(
    group=queue_commands, owner=False, examples=["backburner queue pause cpu_heavy -t lab.py"], remote=True
)
def pause(place: Place, queue: Queue) -> None:
    """Start no more tasks of a queue, on any host. Running tasks continue."""
    place.operator.pause(queue)
    _say_queue(place, queue, True, f"{queue} is paused; its tasks wait until `queue resume`.")


@command(
    group=queue_commands, owner=False, examples=["backburner queue resume cpu_heavy -t lab.py"], remote=True
)
def resume(place: Place, queue: Queue) -> None:
    """Start tasks of a paused queue again."""
    place.operator.resume(queue)
    _say_queue(place, queue, False, f"{queue} is resumed.")


def _say_queue(place: Place, queue: str, paused: bool, words: str) -> None:
    if place.as_json:
        print_json({"queue": queue, "paused": paused})
    else:
        say(words)


#: How long a supervisor may take to exit after its tasks have ended.
_EXIT_S = 15.0
_LOCK_OWNER_S = 5.0

supervisor_commands = group("supervisor", "Stop and restart the supervisor of this host.", SERVERS)


@command(
    group=supervisor_commands,
    owner=False,
    examples=["backburner supervisor stop -t lab.py", "backburner supervisor stop -t lab.py --now"],
)
def stop(
    place: Place,
    now: Annotated[bool, typer.Option("--now", help="Return running tasks to their queue at once")] = False,
) -> None:
    """Stop the supervisor of this host, and wait until it exits.

    Running tasks have supervisor.drain_grace_s to finish, and return to their queue then. A server of the
    app starts a new supervisor when it has a task to run.
    """
    lock = _lock(place)
    told = [one for one in [_lock_owner(lock), *lock.retired()] if one]
    grace_s = 0.0 if now else place.settings.supervisor.drain_grace_s
    left = [one["pid"] for one in _stop_all(told, at_once=now, within_s=grace_s + _EXIT_S)]
    after = lock.holder()
    if after in told and after is not None and after["pid"] not in left:
        left.append(after["pid"])  # its process is in another PID namespace
    stopped = [one["pid"] for one in told if one["pid"] not in left]
    if place.as_json:
        print_json({"stopped": stopped, "not_stopped": left})
    elif not told:
        say("No supervisor is running for this store.")
    for pid in () if place.as_json else stopped:
        say(f"pid {pid} has exited; its tasks are finished or back in their queue.")
    for pid in left:
        say(f"pid {pid} has not exited: it hangs, or is out of reach. See: ps {pid}", "red")
    if after and after.get("pid") not in left:
        say("A server of the app has started a new supervisor, because tasks wait.", "yellow")
    raise typer.Exit(Exit.TROUBLE if left else Exit.OK)


def _stop_all(told: list[Holder], *, at_once: bool, within_s: float) -> list[Holder]:
    """Signal all supervisors, wait, and return those that still run."""
    from ..engines.local.processes.linux import is_running, signal_process

    numbers = (signal.SIGTERM, signal.SIGINT) if at_once else (signal.SIGTERM,)  # a second signal: at once
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


@command(
    group=supervisor_commands,
    needs_app=True,
    create=True,
    owner=False,
    examples=["backburner supervisor restart -t lab.py"],
)
def restart(place: Place) -> None:
    """Replace the supervisor of this host with a new one, or start one.

    The old supervisor finishes its running tasks; the new one takes all others. A `backburner worker` is not
    replaced: restart it yourself.
    """
    from ..engines.local import LocalEngine

    engine = place.app.engine if place.app is not None else None
    assert isinstance(engine, LocalEngine), "the command needs an app"
    before = _lock(place).holder()
    pid = engine.restart()
    if pid is None:
        holder = (_lock(place).holder() or {}).get("pid")
        say(f"pid {holder} does not give up its place. If you started it, restart it yourself.", "red")
        raise typer.Exit(Exit.TROUBLE)
    retired = before.get("pid") if before else None
    if place.as_json:
        print_json({"pid": pid, "retired": retired})
    elif retired is None:
        say(f"pid {pid} has started.")
    else:
        say(f"pid {pid} has started; pid {retired} finishes its running tasks.")


def _lock(place: Place) -> SupervisorLock:
    from ..engines.local import SupervisorLock

    return SupervisorLock(place.data_dir)


def _lock_owner(lock: SupervisorLock) -> Holder | None:
    """Return the supervisor that holds the lock, and wait for a starting one to write its pid."""
    until = time.monotonic() + _LOCK_OWNER_S
    while True:
        found: dict[str, Any] | None = lock.holder()
        if not found or isinstance(found.get("pid"), int):
            return found
        if time.monotonic() > until:
            return None
        time.sleep(0.05)
