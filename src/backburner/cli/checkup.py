"""The checks of `doctor`. Each yields findings, and a finding that is not `ok` says what to do."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from itertools import islice

import typer

from ..engines.local import Standing, linux
from ..errors import AppNotFound, BackburnerError, ConfigError, NotConfined, StoreError
from ..folders import make_private
from ..health import TOO_LITTLE_BYTES, Supervision, Trouble, news_can_come
from .app_checks import Finding, check_app, check_tools
from .disk_use import COMPACT, disk_use, needs_compacting
from .live_workers import as_written, asking_tasks, leased_tasks, live_workers, supervision
from .output import size, span
from .place import Place, Where, open_place
from .webhooks import is_late, troubled_endpoints

_SLOW_READ_S = 0.5
_LITTLE_BYTES = 1 << 30
_SKEW_MS = 2000
_NEARLY_FULL = 0.8
_LONG_WAIT_S = 3600
_MOST_QUESTIONS = 5
_SHORT_S = 20.0


def examine(where: Where) -> Iterator[Finding]:
    """All checks in order. Without a store there is nothing more to look at."""
    yield _versions()
    yield from _variables()
    try:
        place = open_place(where)
    except typer.BadParameter:
        raise
    except (AppNotFound, ConfigError) as error:
        yield Finding("app", "problem", str(error), "Run the file with Python to see the whole error.")
        return
    except StoreError as error:
        yield Finding("store", "problem", str(error), _store_advice(error))
        return
    try:
        yield from _examine_place(place)
    finally:
        place.close()


def _examine_place(place: Place) -> Iterator[Finding]:
    checks: tuple[Callable[[Place], Iterator[Finding]], ...] = (
        check_app,
        check_tools,
        _store,
        _permissions,
        _disk,
        _artifacts,
        _clock,
        _isolation,
        _supervisor,
        _news,
        _leases,
        _queues,
        _questions,
        _webhooks,
        _clients,
    )
    for check in checks:
        try:
            yield from check(place)
        except BackburnerError as error:
            advice = _store_advice(error) if isinstance(error, StoreError) else ""
            yield Finding(check.__name__.removeprefix("check").strip("_"), "problem", str(error), advice)


def _tasks(count: int) -> str:
    return "1 task" if count == 1 else f"{count} tasks"


def _versions() -> Finding:
    import sqlite3

    from ..version import VERSION

    message = f"backburner {VERSION}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    return Finding("versions", "ok", message)


def _variables() -> Iterator[Finding]:
    from ..config.reading import unknown_variables

    if unknown := unknown_variables(os.environ):
        message = f"nobody reads {', '.join(unknown)}"
        yield Finding("variables", "warning", message, "docs/settings.md has the names; unset the others.")


def _store_advice(error: StoreError) -> str:
    from ..errors import (
        StoreBroken,
        StoreBusy,
        StoreCorrupt,
        StoreFull,
        StoreReadOnly,
        StoreTooNew,
        StoreUnavailable,
    )

    advice: dict[type[StoreError], str] = {
        StoreUnavailable: "Check the URL, the network, and that the database is up.",
        StoreBusy: "Another program holds the store locked; close it.",
        StoreFull: "Make room on its disk. Nothing that was acknowledged is lost.",
        StoreReadOnly: "Give this user the right to write the file and its folder.",
        StoreBroken: "See what the system says (dmesg), and move the store to another disk.",
        StoreCorrupt: "Stop all workers, keep a copy, and restore a backup, or try: sqlite3 FILE .recover",
        StoreTooNew: "Upgrade Backburner on this host: pip install -U backburner",
    }
    pid = error.details.get("pid")
    if isinstance(error, StoreBusy) and pid is not None:
        if linux.is_stopped(pid):
            return f"A signal has stopped process {pid}. Let it go on: kill -CONT {pid}"
        return f"Wait for process {pid}, or end it: kill {pid}. Running tasks go on meanwhile."
    return advice.get(type(error), "Check the URL.")


def _store(place: Place) -> Iterator[Finding]:
    started = time.monotonic()
    version = place.store.version()
    total = sum(place.store.count_states().values())
    took = time.monotonic() - started
    message = f"{place.store.url}, version {version}, {_tasks(total)}, read in {took * 1000:.0f} ms"
    if took > _SLOW_READ_S:
        advice = "Look for a slow disk or network, and forget old tasks: backburner prune --older-than 30d"
        yield Finding("store", "warning", message, advice)
    else:
        yield Finding("store", "ok", message)
    place.store.check_writable()


def _permissions(place: Place) -> Iterator[Finding]:
    if not place.store.url.startswith("sqlite:"):
        return
    from ..stores.sqlite import sqlite_path

    path = sqlite_path(place.store.url)
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        message = f"other users of this host may read {path}"
        yield Finding("permissions", "warning", message, f"chmod 600 {path}")


def _disk(place: Place) -> Iterator[Finding]:
    make_private(place.data_dir)
    usage = shutil.disk_usage(place.data_dir)
    held = place.store.size()
    message = f"{size(usage.free)} free of {size(usage.total)} at {place.data_dir}; {disk_use(place, held)}"
    advice = "Make room, or forget old tasks: backburner prune --older-than 7d"
    if usage.free < TOO_LITTLE_BYTES:
        yield Finding("disk", "problem", message, advice)
    elif usage.free < _LITTLE_BYTES:
        yield Finding("disk", "warning", message, advice)
    elif needs_compacting(held):
        yield Finding("disk", "warning", message, f"The store's file is of an earlier release: {COMPACT}.")
    else:
        yield Finding("disk", "ok", message)


def _artifacts(place: Place) -> Iterator[Finding]:
    if place.artifacts.elsewhere:
        yield Finding("artifacts", "ok", f"kept in {place.artifacts.check()}, which answers")


def _clock(place: Place) -> Iterator[Finding]:
    """Nothing is measured by wall clocks, but what they show is compared by people."""
    now = time.time() * 1000
    ahead = {}
    theirs = place.store.now_ms()
    if abs(theirs - now) > _SKEW_MS:
        ahead["the database"] = theirs - now
    probe = place.data_dir / f".clock-{os.getpid()}"
    try:
        probe.touch()
        disk_ms = probe.stat().st_mtime * 1000
    finally:
        probe.unlink(missing_ok=True)
    if abs(disk_ms - time.time() * 1000) > _SKEW_MS:
        ahead["the file server"] = disk_ms - now
    for host, by_ms in ahead.items():
        message = f"the clock of {host} differs from this one's by {span(abs(by_ms) / 1000)}"
        yield Finding("clock", "problem", message, "Set up NTP on both hosts: timedatectl set-ntp true")
    if not ahead:
        yield Finding("clock", "ok", "agrees with the disk's and the store's")


def _isolation(place: Place) -> Iterator[Finding]:
    """What keeps tools from the host, and what could."""
    from ..engines.local.isolation import available, in_force, require

    try:
        require(place.settings)
    except NotConfined as error:
        advice = f"Change {error.details['setting']}, or the machine; no task is run until then."
        yield Finding("isolation", "problem", str(error), advice)
        return
    asked = ", ".join(in_force(place.settings.isolation)) or "nothing"
    message = f"{asked} confines tools; this machine gives {', '.join(available())}"
    yield Finding("isolation", "ok", message)


def _supervisor(place: Place) -> Iterator[Finding]:
    """Is there somebody to do what is to be done, and is whoever holds the lock still at work."""
    found = supervision(place)
    standing, live = found.standing, len(found.live)
    if found.trouble is not None:
        yield _supervisor_trouble(place, found)
    elif standing.state == "starting":
        yield Finding("supervisor", "ok", f"pid {standing.pid} is starting")
    elif standing.state == "working":
        yield _working(place, standing, live)
    elif live:
        yield Finding("supervisor", "ok", f"none on this host; {live} workers are alive on others")
    else:
        yield Finding("supervisor", "ok", "none, and nothing to do; the next task starts one")


def _working(place: Place, standing: Standing, live: int) -> Finding:
    from ..version import VERSION

    message = f"pid {standing.pid} works here; {live} workers are alive"
    if standing.version == VERSION:
        return Finding("supervisor", "ok", message)
    advice = f"Have a new one take over: {place.command('restart')}"
    if not standing.detached:
        advice = "Start it anew with this version, where you started it."
    other = f"{message}; it is of version {standing.version or 'unknown'}, and this is {VERSION}"
    return Finding("supervisor", "warning", other, advice)


def _supervisor_trouble(place: Place, found: Supervision) -> Finding:
    pid, silence = found.standing.pid, span(found.standing.silent_s)
    after = span(place.settings.supervisor.lost_after_s)
    see = f"see {place.data_dir / 'supervisor.log'}"
    match found.trouble:
        case Trouble.STOPPED:
            message = f"pid {pid} holds the lock, but a signal has stopped it; last heard {silence} ago"
            advice = f"Let it go on: kill -CONT {pid}. A server of the app replaces it after {after}."
        case Trouble.SILENT:
            message = f"pid {pid} holds the lock, but its heartbeats have not arrived for {silence}"
            advice = (
                f"It hangs, or is cut off from its store: {see}. A server of the app on this host "
                f"replaces it after {after} of silence; if there is none: kill -9 {pid}"
            )
        case Trouble.REFUSED:
            message = f"pid {pid} cannot write what its tasks did: {found.reason}"
            advice = f"Put that right, and it goes on; {see}."
        case _:
            left = sum(depth.queued + depth.leased for depth in place.store.queue_depths())
            app = "TARGET" if place.app is None else as_written(place.app.target)
            message = f"{_tasks(left)} to do, and nobody works"
            advice = f"Start one: backburner worker {app}, or start a server of the app."
    return Finding("supervisor", "problem", message, advice)


def _news(place: Place) -> Iterator[Finding]:
    """Can those who wait be woken, or must they look each second."""
    if not news_can_come(place.store):
        message = "the folder by which processes wake each other is gone and cannot be made again"
        advice = (
            f"Look at {place.store.url.removeprefix('sqlite://')}.d/wake: it must be a folder of this user."
        )
        yield Finding("news", "problem", message, advice)


def _leases(place: Place) -> Iterator[Finding]:
    live = {worker.worker_id for worker in live_workers(place)}
    leased = list(leased_tasks(place))
    orphans = [task for task in leased if task.worker_id not in live]
    if not orphans:
        yield Finding("leases", "ok", f"{_tasks(len(leased))} leased, all by workers that are alive")
        return
    named = ", ".join(task.task_id for task in orphans[:3]) + (" …" if len(orphans) > 3 else "")
    message = f"{_tasks(len(orphans))} leased by workers that are gone: {named}"
    if live:
        grace = span(place.settings.supervisor.lease_grace_s)
        advice = f"A keeper retries or fails them within {grace} or so: look again then."
        yield Finding("leases", "warning", message, advice)
    else:
        advice = (
            f"Start a worker, which takes over: backburner worker {as_written(orphans[0].target) or 'TARGET'}"
        )
        yield Finding("leases", "problem", message, advice)


def _queues(place: Place) -> Iterator[Finding]:
    fine = True
    anybody = bool(live_workers(place))
    for queue in place.operator.queues():
        name, queued, longest = queue["queue"], queue["queued"], queue["max_length"]
        if longest and queued >= _NEARLY_FULL * longest:
            fine = False
            message = f"{name} holds {queued} of at most {longest} waiting tasks"
            advice = (
                f"Add workers (queues.{name}.workers, or another host), or raise queues.{name}.max_length."
            )
            yield Finding("queues", "problem" if queued >= longest else "warning", message, advice)
        if queued and not queue["workers"] and (anybody or not queue["workers_on_this_host"]):
            fine = False
            message = f"{_tasks(queued)} waiting in {name}, for which there is no worker"
            advice = f"Start one: backburner worker TARGET --queue {name}=1, or set queues.{name}.workers."
            yield Finding("queues", "problem", message, advice)
    if fine:
        yield Finding("queues", "ok", "none is nearly full")


def _questions(place: Place) -> Iterator[Finding]:
    """Who waits for an answer; a person may have overlooked what has waited for long."""
    for one in islice(asking_tasks(place), _MOST_QUESTIONS):
        long = time.time() - one.since / 1000 > _LONG_WAIT_S
        yield Finding("questions", "warning" if long else "ok", one.message, one.command)


def _webhooks(place: Place) -> Iterator[Finding]:
    """Endpoints that keep failing, and messages that nobody sends."""
    see = (
        "See backburner webhooks list --all-owners; once it is mended: backburner webhooks retry --all-owners"
    )
    for one in troubled_endpoints(place):
        yield Finding(
            "webhooks", "warning", f"{one.endpoint} was not told {one.failed} times: {one.error}", see
        )
    late = [
        one for one in place.store.deliveries() if not one.attempts and is_late(one, place.store.now_ms())
    ]
    if late:
        message = f"{len(late)} endpoints are to be told of an end, and nobody does it"
        advice = "The supervisor may have begun before webhooks were set: backburner restart -t APP"
        yield Finding("webhooks", "warning", message, advice)


def _clients(place: Place) -> Iterator[Finding]:
    """Whose learned limit is so short that most of its calls are answered by a handle, or set too long."""
    for one in place.operator.clients():
        held_s = one["held_s"]
        who = f"{one['name']} {one['version']} over {one['transport']}"
        gave_up = f"{who} gave up on a call after {span(one['gave_up_after_s'])}"
        if one["source"] == "settings" and (held_s is None or held_s >= one["gave_up_after_s"]):
            held = "to the end" if held_s is None else f"for {span(held_s)}"
            advice = f"Set mcp.client_patience for {one['name']!r} below that, or mcp.patience_s."
            yield Finding("clients", "warning", f"{gave_up}, and the settings hold its calls {held}", advice)
        elif one["source"] == "learned" and held_s is not None and held_s < _SHORT_S:
            advice = (
                "Raise the host's own limit for tool calls. When it is raised, or if it was an accident:"
                f" {place.command('clients', 'reset', one['name'])}"
            )
            yield Finding(
                "clients", "warning", f"{gave_up}, so its calls are held for {span(held_s)}", advice
            )
