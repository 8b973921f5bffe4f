"""The `doctor` command: checks of the installation, the store, the app and its clients."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from .. import errors
from ..core.files import make_private, tasks_folder
from ..core.text import printable
from ..engines.health import TOO_LITTLE_BYTES, Supervision, Trouble, news_can_come
from ..engines.local.processes import linux
from ..service.records import record
from ..version import VERSION
from .command import OPERATIONS, Exit, command
from .output import cell, print_json, show_line, size, span
from .place import (
    Place,
    Where,
    as_written,
    asking_tasks,
    discover_tools,
    leased_tasks,
    live_workers,
    open_place,
    supervision,
)

if TYPE_CHECKING:
    from ..engines.local import SupervisorStatus
    from ..store.protocol import StoreSize


_SLOW_READ_S = 0.5
_LOW_SPACE_BYTES = 1 << 30
_MAX_SKEW_MS = 2000
_NEARLY_FULL = 0.8
_LONG_WAIT_S = 3600
_MAX_QUESTIONS = 5
_SHORT_PATIENCE_S = 20.0
_COUNT_FILES_S = 1.0
#: An untried webhook delivery that is overdue by this much has no sender.
_OVERDUE_MS = 60_000


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `advice` is empty if there is nothing to do."""

    check: str
    level: Literal["ok", "warning", "problem"]
    message: str
    advice: str = ""


@command(
    panel=OPERATIONS,
    owner=False,
    examples=["backburner doctor -t lab.py", "backburner doctor --store sqlite:///lab.db --json"],
)
def doctor(where: Where) -> None:
    """Check the app, the store, disk, clock, supervisor, queues, webhooks and clients, and give advice.

    The exit code is 4 if there is a problem; warnings alone give 0.
    """
    findings = list(examine(where))
    healthy = all(one.level != "problem" for one in findings)
    if where.as_json:
        print_json({"findings": record(findings), "healthy": healthy})
    else:
        marks = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "problem": ("✗", "red")}
        for one in findings:
            mark, style = marks[one.level]
            line = cell(f"{mark} ", style).append_text(cell(f"{one.check}: ", "bold"))
            show_line(line.append(printable(one.message)))
            if one.advice:
                show_line(cell(f"  → {one.advice}"))
    raise typer.Exit(Exit.OK if healthy else Exit.TROUBLE)


def examine(where: Where) -> Iterator[Finding]:
    """Run all checks in order."""
    yield _versions()
    yield from _variables()
    try:
        place = open_place(where)
    except (errors.AppNotFound, errors.ConfigError) as error:
        yield Finding("app", "problem", str(error), "Run the file with Python to see the whole error.")
        return
    except errors.StoreError as error:
        yield Finding("store", "problem", str(error), _store_advice(error))
        return
    try:
        for name, check in _CHECKS.items():
            try:
                yield from check(place)
            except errors.BackburnerError as error:
                advice = _store_advice(error) if isinstance(error, errors.StoreError) else ""
                yield Finding(name, "problem", str(error), advice)
    finally:
        place.close()


def _count(number: int) -> str:
    return "1 task" if number == 1 else f"{number} tasks"


def _versions() -> Finding:
    import sqlite3

    message = f"backburner {VERSION}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    return Finding("versions", "ok", message)


def _variables() -> Iterator[Finding]:
    from ..settings.reader import unknown_variables

    if unknown := unknown_variables(os.environ):
        advice = "docs/reference/settings.md lists the names; unset the others."
        yield Finding("variables", "warning", f"unknown variables: {', '.join(unknown)}", advice)


def _app(place: Place) -> Iterator[Finding]:
    if place.app is not None:
        yield Finding("app", "ok", f"{place.app.name} loads from {as_written(place.app.target) or 'nowhere'}")
        if not place.app.target:
            advice = "Put the app into a .py file; runners import it from there."
            yield Finding("app", "problem", "runners cannot find the app", advice)
        for lost in place.app.lost_globals():
            advice = "Set it when the file is imported, or by the environment: docs/start/what-changes.md"
            yield Finding("app", "warning", str(lost), advice)


def _tools(place: Place) -> Iterator[Finding]:
    if place.app is None:
        return
    try:
        if place.app.server is not None:
            discover_tools(place.app)
    except Exception as error:  # the server may raise anything
        message = f"the server cannot list its tools: {type(error).__name__}: {error}"
        yield Finding("tools", "problem", message, "Run the server and list its tools with a client.")
        return
    offered = ", ".join(place.app.tools.offered) or "none"
    for pattern in place.app.tools.unmatched:
        message = f"slow={pattern!r} matches none of the server's tools"
        yield Finding("tools", "warning", message, f"Fix or remove it. The server's tools are: {offered}")
    for spec in place.app.tools:
        if spec.answer == "handle" and not spec.allows_handle:
            message = f'{spec.name}: its output schema does not allow a handle, so answer="handle" is held'
            advice = (
                "Remove the output schema (FastMCP: output_schema=None, MCPServer: structured_output=False), "
                "or return a dict. Clients that support tasks, or ask for a handle, are not affected."
            )
            yield Finding("tools", "warning", message, advice)


def _store_advice(error: errors.StoreError) -> str:
    advice: dict[type[errors.StoreError], str] = {
        errors.StoreUnavailable: "Check the URL, the network, and that the database is up.",
        errors.StoreBusy: "Another program locks the store; close it.",
        errors.StoreFull: "Free disk space. No acknowledged data is lost.",
        errors.StoreReadOnly: "Give this user the right to write the file and its folder.",
        errors.StoreBroken: "Check the kernel log (dmesg), and move the store to another disk.",
        errors.StoreCorrupt: (
            "Stop all workers, make a copy, and restore a backup, or try: sqlite3 FILE .recover"
        ),
        errors.StoreTooNew: "Upgrade Backburner on this host: pip install -U backburner",
    }
    pid = error.details.get("pid")
    if isinstance(error, errors.StoreBusy) and pid is not None:
        if linux.is_stopped(pid):
            return f"Process {pid} is stopped by a signal. Continue it: kill -CONT {pid}"
        return f"Wait for process {pid}, or end it: kill {pid}. Running tasks continue meanwhile."
    return advice.get(type(error), "Check the URL.")


def _store(place: Place) -> Iterator[Finding]:
    started = time.monotonic()
    version = place.store.version()
    total = sum(place.store.count_states().values())
    took = time.monotonic() - started
    message = f"{place.store.url}, version {version}, {_count(total)}, read in {took * 1000:.0f} ms"
    if took > _SLOW_READ_S:
        advice = "Look for a slow disk or network, and delete old tasks: backburner prune --older-than 30d"
        yield Finding("store", "warning", message, advice)
    else:
        yield Finding("store", "ok", message)
    place.store.check_writable()


def _permissions(place: Place) -> Iterator[Finding]:
    if not place.store.url.startswith("sqlite:"):
        return
    from ..store.sqlite import sqlite_path

    path = sqlite_path(place.store.url)
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        message = f"other users of this host may read {path}"
        yield Finding("permissions", "warning", message, f"chmod 600 {path}")


def _disk(place: Place) -> Iterator[Finding]:
    make_private(place.data_dir)
    usage = shutil.disk_usage(place.data_dir)
    sizes = f"{_store_size(place.store.size())}; the files of tasks have {_files_size(place.data_dir)}"
    message = f"{size(usage.free)} free of {size(usage.total)} at {place.data_dir}; {sizes}"
    if usage.free < _LOW_SPACE_BYTES:
        level: Literal["warning", "problem"] = "problem" if usage.free < TOO_LITTLE_BYTES else "warning"
        advice = "Free disk space, or delete old tasks: backburner prune --older-than 7d"
        yield Finding("disk", level, message, advice)
    else:
        yield Finding("disk", "ok", message)


def _store_size(held: StoreSize) -> str:
    parts = [f"the store has {size(held.bytes)}"]
    if held.log_bytes:
        parts.append(f"{size(held.log_bytes)} of it a write-ahead log")
    if held.free_bytes:
        parts.append(f"{size(held.free_bytes)} of it free")
    return ", ".join(parts)


def _files_size(data_dir: Path) -> str:
    """Return the total size of task files, or what can be counted in a second."""
    total, deadline = 0, time.monotonic() + _COUNT_FILES_S
    for folder, _, names in os.walk(tasks_folder(data_dir)):
        for name in names:
            with contextlib.suppress(OSError):
                total += Path(folder, name).lstat().st_size
        if time.monotonic() > deadline:
            return f"more than {size(total)}"
    return size(total)


def _artifacts(place: Place) -> Iterator[Finding]:
    if place.artifact_store.elsewhere:
        yield Finding("artifacts", "ok", f"stored in {place.artifact_store.check()}, which is reachable")


def _clock(place: Place) -> Iterator[Finding]:
    """Compare the wall clocks, which appear in records but measure nothing."""
    now = time.time() * 1000
    ahead = {"the database": place.store.now_ms() - now}
    probe = place.data_dir / f".clock-{os.getpid()}"
    try:
        probe.touch()
        ahead["the file server"] = probe.stat().st_mtime * 1000 - time.time() * 1000
    finally:
        probe.unlink(missing_ok=True)
    skewed = {host: by_ms for host, by_ms in ahead.items() if abs(by_ms) > _MAX_SKEW_MS}
    for host, by_ms in skewed.items():
        message = f"the clock of {host} differs from that of this host by {span(abs(by_ms) / 1000)}"
        yield Finding("clock", "problem", message, "Set up NTP on both hosts: timedatectl set-ntp true")
    if not skewed:
        yield Finding("clock", "ok", "agrees with the disk and the store")


def _isolation(place: Place) -> Iterator[Finding]:
    from ..engines.local.isolation import available, in_force, require

    try:
        require(place.settings)
    except errors.NotConfined as error:
        advice = f"Change {error.details['setting']}, or the machine; until then no task runs."
        yield Finding("isolation", "problem", str(error), advice)
        return
    asked = ", ".join(in_force(place.settings.isolation)) or "nothing"
    message = f"{asked} confines tools; this machine supports {', '.join(available())}"
    yield Finding("isolation", "ok", message)


def _supervisor(place: Place) -> Iterator[Finding]:
    found = supervision(place)
    standing, live = found.standing, len(found.live)
    if found.trouble is not None:
        yield _supervisor_problem(place, found)
    elif standing.state == "starting":
        yield Finding("supervisor", "ok", f"pid {standing.pid} is starting")
    elif standing.state == "working":
        yield _running(place, standing, live)
    elif live:
        yield Finding("supervisor", "ok", f"none on this host; {live} workers are alive on others")
    else:
        yield Finding("supervisor", "ok", "none, and no task waits; the next task starts one")


def _running(place: Place, standing: SupervisorStatus, live: int) -> Finding:
    message = f"pid {standing.pid} is running; {live} workers are alive"
    if standing.version == VERSION:
        return Finding("supervisor", "ok", message)
    advice = f"Replace it: {place.command('supervisor restart')}"
    if not standing.detached:
        advice = "Restart it with this version."
    other = f"{message}; its version is {standing.version or 'unknown'}, and this is {VERSION}"
    return Finding("supervisor", "warning", other, advice)


def _supervisor_problem(place: Place, found: Supervision) -> Finding:
    pid, silence = found.standing.pid, span(found.standing.silent_s)
    after = span(place.settings.supervisor.lost_after_s)
    see = f"see {place.data_dir / 'supervisor.log'}"
    match found.trouble:
        case Trouble.STOPPED:
            message = f"pid {pid} holds the lock, but is stopped by a signal; last heartbeat {silence} ago"
            advice = f"Continue it: kill -CONT {pid}. A server of the app replaces it after {after}."
        case Trouble.SILENT:
            message = f"pid {pid} holds the lock, but has sent no heartbeat for {silence}"
            advice = (
                f"It hangs, or cannot reach its store: {see}. A server of the app on this host "
                f"replaces it after {after}; without a server: kill -9 {pid}"
            )
        case Trouble.REFUSED:
            message = f"pid {pid} cannot write the reports of its tasks: {found.reason}"
            advice = f"Fix that, and it continues; {see}."
        case _:
            waiting = sum(depth.queued + depth.leased for depth in place.store.queue_depths())
            app = "TARGET" if place.app is None else as_written(place.app.target)
            message = f"{_count(waiting)} waiting, and no supervisor is running"
            advice = f"Start a worker: backburner worker {app}, or start a server of the app."
    return Finding("supervisor", "problem", message, advice)


def _notifications(place: Place) -> Iterator[Finding]:
    if not news_can_come(place.store):
        message = "the folder by which processes wake each other is missing and cannot be created"
        folder = f"{place.store.url.removeprefix('sqlite://')}.d/wake"
        yield Finding("news", "problem", message, f"Check {folder}: it must be a folder of this user.")


def _leases(place: Place) -> Iterator[Finding]:
    live = {worker.worker_id for worker in live_workers(place)}
    leased = list(leased_tasks(place))
    orphans = [task for task in leased if task.worker_id not in live]
    if not orphans:
        yield Finding("leases", "ok", f"{_count(len(leased))} leased, all by live workers")
        return
    named = ", ".join(task.task_id for task in orphans[:3]) + (" …" if len(orphans) > 3 else "")
    message = f"{_count(len(orphans))} leased by lost workers: {named}"
    if live:
        grace = span(place.settings.supervisor.lease_grace_s)
        advice = f"A keeper retries or fails them within about {grace}: check again then."
        yield Finding("leases", "warning", message, advice)
    else:
        target = as_written(orphans[0].target) or "TARGET"
        advice = f"Start a worker to take over: backburner worker {target}"
        yield Finding("leases", "problem", message, advice)


def _queues(place: Place) -> Iterator[Finding]:
    fine = True
    any_workers = bool(live_workers(place))
    for queue in place.operator.queues():
        name, queued, longest = queue["queue"], queue["queued"], queue["max_length"]
        if longest and queued >= _NEARLY_FULL * longest:
            fine = False
            message = f"{name} has {queued} of at most {longest} waiting tasks"
            advice = (
                f"Add workers (queues.{name}.workers, or another host), or raise queues.{name}.max_length."
            )
            yield Finding("queues", "problem" if queued >= longest else "warning", message, advice)
        if queued and not queue["workers"] and (any_workers or not queue["workers_on_this_host"]):
            fine = False
            message = f"{_count(queued)} waiting in {name}, which has no worker"
            advice = f"Start one: backburner worker TARGET --queue {name}=1, or set queues.{name}.workers."
            yield Finding("queues", "problem", message, advice)
    if fine:
        yield Finding("queues", "ok", "none is nearly full")


def _questions(place: Place) -> Iterator[Finding]:
    for one in islice(asking_tasks(place), _MAX_QUESTIONS):
        long = time.time() - one.since / 1000 > _LONG_WAIT_S
        yield Finding("questions", "warning" if long else "ok", one.message, one.command)


def _webhooks(place: Place) -> Iterator[Finding]:
    deliveries = place.store.deliveries()
    failed: dict[str, list[str]] = {}
    for one in deliveries:
        if one.last_error and (one.due_at is None or one.attempts > 1):
            failed.setdefault(one.endpoint, []).append(one.last_error)
    for endpoint, reasons in failed.items():
        message = f"{len(reasons)} deliveries to {endpoint} failed: {reasons[-1]}"
        advice = (
            "See backburner webhooks ls --all-owners; after a fix: backburner webhooks retry --all-owners"
        )
        yield Finding("webhooks", "warning", message, advice)
    overdue_at = place.store.now_ms() - _OVERDUE_MS
    late = [one for one in deliveries if not one.attempts and one.due_at and one.due_at < overdue_at]
    if late:
        message = f"{len(late)} webhook deliveries are overdue"
        advice = (
            "The supervisor may have started before webhooks were set: backburner supervisor restart -t APP"
        )
        yield Finding("webhooks", "warning", message, advice)


def _clients(place: Place) -> Iterator[Finding]:
    """Warn of short timeouts that were learned, and of settings that exceed the real timeout."""
    for one in place.operator.clients():
        held_s = one["held_s"]
        who = f"{one['name']} {one['version']} over {one['transport']}"
        gave_up = f"{who} gave up on a call after {span(one['gave_up_after_s'])}"
        if one["source"] == "settings" and (held_s is None or held_s >= one["gave_up_after_s"]):
            held = "to the end" if held_s is None else f"for {span(held_s)}"
            advice = f"Set mcp.client_patience for {one['name']!r} below that, or mcp.patience_s."
            yield Finding("clients", "warning", f"{gave_up}, but the settings hold its calls {held}", advice)
        elif one["source"] == "learned" and held_s is not None and held_s < _SHORT_PATIENCE_S:
            message = f"{gave_up}, so its calls are held for {span(held_s)}"
            reset = place.command("client reset", one["name"])
            advice = f"Raise the host's timeout for tool calls; then, or if it was an accident: {reset}"
            yield Finding("clients", "warning", message, advice)


_CHECKS: dict[str, Callable[[Place], Iterator[Finding]]] = {
    "app": _app,
    "tools": _tools,
    "store": _store,
    "permissions": _permissions,
    "disk": _disk,
    "artifacts": _artifacts,
    "clock": _clock,
    "isolation": _isolation,
    "supervisor": _supervisor,
    "news": _notifications,
    "leases": _leases,
    "queues": _queues,
    "questions": _questions,
    "webhooks": _webhooks,
    "clients": _clients,
}
