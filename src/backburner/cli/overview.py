"""`queues`, `workers`, `stats`, `tools`: what there is, and how busy it is."""

from __future__ import annotations

from typing import Any

import typer

from ..lifecycle import State
from ..terminal_text import printable
from ..times import from_iso
from .listing import shown_id
from .output import age, cell, print_json, say, show, span, state_cell, table
from .place import Place
from .verb import verb


def add_to(app: typer.Typer) -> None:
    verb(
        app,
        panel="Looking after a store",
        without=("owner", "all_owners"),
        examples=["backburner queues -t lab.py", "backburner queues --json"],
        remote=True,
    )(queues)
    verb(
        app,
        panel="Looking after a store",
        without=("owner", "all_owners"),
        examples=["backburner workers --store postgresql://db/tasks"],
        remote=True,
    )(workers)
    verb(
        app,
        panel="Looking after a store",
        examples=["backburner stats -t lab.py", "backburner stats --all-owners --json | jq .states"],
        remote=True,
    )(stats)
    verb(
        app,
        panel="Looking after a store",
        tools=True,
        without=("owner", "all_owners"),
        examples=["backburner tools -t lab.py", "backburner tools --json | jq '.tools[].input_schema'"],
        remote=True,
    )(tools)


def queues(place: Place) -> None:
    """Show the queues: how many tasks wait and run, how many workers are alive, how full each is.

    Nothing of a queue that is paused begins until it is resumed; see `pause`.
    """
    found = place.operator.queues()
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
    found = place.operator.workers()
    if place.as_json:
        print_json({"workers": found})
        return
    if not found:
        say("No workers. They start with the first task, or with `backburner worker`.")
        return
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
        for one, *others in _alike(found)
    ]
    columns = ["WORKER", "HOST", "QUEUE", "STATE", "PID", "HEARD", "TASK"]
    show(table(columns, rows, whole=("WORKER", "STATE", "TASK")))


def _alike(found: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Each worker by itself, but those together that only stand by: they have no process."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for one in found:
        stands_by = one["pid"] is None and one["current_task_id"] is None and one["alive"]
        key = (one["supervisor_id"] or "", one["queue"], one["state"]) if stands_by else (one["worker_id"],)
        groups.setdefault(key, []).append(one)
    return list(groups.values())


def stats(place: Place) -> None:
    """Count the tasks in each state, and show how long each tool's latest successes took."""
    states, runtimes = place.operator.states(place.owner), place.operator.runtimes(place.owner)
    if place.as_json:
        print_json({"states": states, "tools": runtimes})
        return
    if not any(states.values()):
        say("No tasks.")
        return
    rows = [[state_cell(State(state)), count] for state, count in states.items() if count]
    show(table(["STATE", "TASKS"], rows))
    if runtimes:
        rows = [
            [one["tool_name"], one["runs"], span(one["median_s"]), span(one["p95_s"])] for one in runtimes
        ]
        show("", table(["TOOL", "LATEST RUNS", "MEDIAN", "95%"], rows))


def tools(place: Place) -> None:
    """List the slow tools of an app, with their inputs."""
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
