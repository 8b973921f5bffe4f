"""`queues`, `workers`, `stats`, `tools`: what there is, and how busy it is."""

from __future__ import annotations

from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

import typer

from ..lifecycle import State
from ..records import queue_records, record, tool_record
from ..terminal_text import printable
from .listing import shown_id
from .live_workers import live_workers
from .output import age, cell, print_json, say, show, span, state_cell, table
from .place import Place, learn_tools
from .verb import verb

if TYPE_CHECKING:
    from ..task import Worker

_LATEST = 500


def add_to(app: typer.Typer) -> None:
    verb(
        app,
        panel="Looking after a store",
        without=("owner", "all_owners"),
        examples=["backburner queues -t lab.py", "backburner queues --json"],
    )(queues)
    verb(
        app,
        panel="Looking after a store",
        without=("owner", "all_owners"),
        examples=["backburner workers --store postgresql://db/tasks"],
    )(workers)
    verb(
        app,
        panel="Looking after a store",
        examples=["backburner stats -t lab.py", "backburner stats --all-owners --json | jq .states"],
    )(stats)
    verb(
        app,
        panel="Looking after a store",
        tools=True,
        without=("owner", "all_owners"),
        examples=["backburner tools -t lab.py", "backburner tools --json | jq '.tools[].input_schema'"],
    )(tools)


def queues_of(place: Place) -> list[dict[str, Any]]:
    """The queues of a place, as `queue_records` has them."""
    return queue_records(place.store, place.settings, live_workers(place))


def queues(place: Place) -> None:
    """Show the queues: how many tasks wait and run, how many workers are alive, how full each is.

    Nothing of a queue that is paused begins until it is resumed; see `pause`.
    """
    found = queues_of(place)
    if place.as_json:
        print_json({"queues": found})
        return
    rows = [
        [
            one["queue"] if one["paused_at"] is None else cell(f"{one['queue']} (paused)", "yellow"),
            one["queued"],
            one["running"],
            f"{one['workers']} alive, {one['workers_on_this_host']} set for this host",
            "-"
            if not one["max_length"]
            else f"{100 * one['queued'] / one['max_length']:.0f}% of {one['max_length']}",
        ]
        for one in found
    ]
    show(table(["QUEUE", "QUEUED", "RUNNING", "WORKERS", "FULL"], rows, whole=("QUEUE", "QUEUED", "RUNNING")))


def workers(place: Place) -> None:
    """Show the workers of every host: what each is at, and when it was last heard.

    Those of a queue that have no process now, since there is nothing to do, share a line.
    """
    found = place.store.workers()
    live = {worker.worker_id for worker in live_workers(place)}
    if place.as_json:
        print_json({"workers": [{**record(one), "alive": one.worker_id in live} for one in found]})
        return
    if not found:
        say("No workers. They start with the first task, or with `backburner worker`.")
        return
    rows = [
        [
            one.worker_id if not others else f"{1 + len(others)} workers",
            one.host,
            one.queue,
            cell(one.state) if one.worker_id in live else cell("lost", "red"),
            one.pid,
            f"{age(one.last_heartbeat)} ago",
            None if one.current_task_id is None else shown_id(place, one.current_task_id),
        ]
        for one, *others in _alike(found, live)
    ]
    columns = ["WORKER", "HOST", "QUEUE", "STATE", "PID", "HEARD", "TASK"]
    show(table(columns, rows, whole=("WORKER", "STATE", "TASK")))


def _alike(found: list[Worker], live: set[str]) -> list[list[Worker]]:
    """Each worker by itself, but those together that only stand by: they have no process."""
    groups: dict[tuple[str, ...], list[Worker]] = {}
    for one in found:
        stands_by = one.pid is None and one.current_task_id is None and one.worker_id in live
        key = (one.supervisor_id, one.queue) if stands_by else (one.worker_id,)
        groups.setdefault(key, []).append(one)
    return list(groups.values())


def stats(place: Place) -> None:
    """Count the tasks in each state, and show how long each tool's latest successes took."""
    counted = place.store.count_states(place.owner)
    latest = place.service.list(owner=place.owner, limit=_LATEST).tasks
    known = {task.tool_name for task in latest}
    runtimes = [found for name in sorted(known) if (found := _runtimes(place, name)) is not None]
    if place.as_json:
        states = {str(state): counted.get(state, 0) for state in State}
        print_json({"states": states, "tools": runtimes})
        return
    if not counted:
        say("No tasks.")
        return
    show(
        table(
            ["STATE", "TASKS"], [[state_cell(state), counted[state]] for state in State if counted.get(state)]
        )
    )
    if runtimes:
        rows = [
            [one["tool_name"], one["runs"], span(one["median_s"]), span(one["p95_s"])] for one in runtimes
        ]
        show("", table(["TOOL", "LATEST RUNS", "MEDIAN", "95%"], rows))


def _runtimes(place: Place, tool_name: str) -> dict[str, Any] | None:
    took = [run.seconds for run in place.store.runtimes(tool_name)]
    if not took:
        return None
    slow = took[0] if len(took) == 1 else quantiles(took, n=100, method="inclusive")[94]
    return {"tool_name": tool_name, "runs": len(took), "median_s": median(took), "p95_s": slow}


def tools(place: Place) -> None:
    """List the slow tools of an app, with their inputs."""
    assert place.app is not None, "this verb needs an app"
    learn_tools(place.app)
    found = [tool_record(spec, place.settings) for spec in place.app.tools]
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
