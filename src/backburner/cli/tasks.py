"""`show`: one task, whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..records import record, status_record
from ..short_names import owner_name
from ..terminal_text import printable
from .output import cell, error_line, field_table, moment, print_json, say, show, span, state_cell, table
from .place import Place
from .results import shown_value
from .verb import TaskId, verb
from .watching import question_hints

if TYPE_CHECKING:
    from ..service import TaskStatus


def add_to(app: typer.Typer) -> None:
    verb(
        app,
        "show",
        examples=[
            "backburner show tsk_01J8WQ6JY7 -t lab.py",
            "backburner show tsk_01J8WQ6JY7 --json | jq .progress",
        ],
        remote=True,
    )(show_task)


def show_task(
    place: Place,
    task_id: TaskId,
    inputs: Annotated[
        bool, typer.Option("--inputs", help="Show the inputs as they are, also what is marked as secret")
    ] = False,
) -> None:
    """Show everything about a task: state, progress, inputs, attempts, history, artifacts, error."""
    status = place.service.status(task_id, owner=place.owner)
    task = status.task
    attempts, events = place.store.attempts(task_id), place.store.events(task_id)
    artifacts = place.store.artifacts(task_id)
    given = task.inputs if inputs else place.shown_inputs(task)
    if place.as_json:
        history = {"attempts": record(attempts), "events": record(events), "artifacts": record(artifacts)}
        print_json({**status_record(status), "inputs": given, **history})
        return
    show(field_table([*_fields(status), ("inputs", _inputs_cell(given))]))
    if attempts:
        show("", cell("Attempts", "bold"))
        rows = [
            [one.attempt, one.outcome or "goes on", one.worker_id, moment(one.claimed_at), _took(one)]
            for one in attempts
        ]
        show(table(["", "OUTCOME", "WORKER", "LEASED", "TOOK"], rows))
    show("", cell("History", "bold"))
    show(
        table(["WHEN", "SIGNAL", "STATE"], [[moment(e.ts), e.signal, state_cell(e.to_state)] for e in events])
    )
    if artifacts:
        show("", cell(f"Artifacts  ({place.command('artifacts get', task_id)})", "bold"))
        show(table(["NAME", "KIND", "BYTES"], [[one.name, one.kind, one.size_bytes] for one in artifacts]))
    if task.error is not None and task.error.details:
        show("", cell("Error", "bold"), printable(task.error.details, lines=True))
    for hint in question_hints(place, status):
        say(hint, "magenta")


def _inputs_cell(given: Any) -> Any:
    from rich.text import Text

    if given is None:
        return cell("not shown, since they may hold secrets: --inputs shows them", "dim")
    return Text(shown_value(given))


def _fields(status: TaskStatus) -> list[tuple[str, Any]]:
    task, progress = status.task, status.task.progress
    said = []
    if progress is not None:
        percent = None if progress.percent is None else f"{progress.percent:.0f}%"
        steps = None if not progress.step_total else f"{progress.step:g} of {progress.step_total:g}"
        said = [part for part in (percent, steps, progress.phase, progress.message) if part]
    queue = task.queue if status.position is None else f"{task.queue}, position {status.position}"
    return [
        ("task", task.task_id),
        ("tool", task.tool_name),
        ("state", state_cell(task.state)),
        ("waits for", task.waits_for),
        ("progress", " · ".join(said) or None),
        ("expected", f"about {span(status.estimate.seconds)}, {status.estimate.source.words}"),
        ("time left", None if status.eta_s is None else f"about {span(status.eta_s)}"),
        ("error", None if task.error is None else error_line(task.error)),
        ("owner", owner_name(task.owner)),
        ("queue", queue),
        ("priority", task.priority or None),
        ("tags", ", ".join(task.tags) or None),
        ("attempt", f"{task.tries} of at most {task.max_attempts}" if task.tries else None),
        ("worker", task.worker_id),
        ("submitted", moment(task.submitted_at)),
        ("started", moment(task.started_at)),
        ("completed", moment(task.completed_at)),
        ("times out", None if task.finished else moment(task.timeout_at)),
        ("kept until" if task.finished else "expires", moment(task.expires_at)),
        ("app", task.target or None),
        ("idempotency key", task.idempotency_key),
        ("parent", task.parent_id),
        ("cancelled because", task.cancel_reason),
    ]


def _took(attempt: Any) -> str:
    if attempt.started_at is None or attempt.ended_at is None:
        return "-"
    return span((attempt.ended_at - attempt.started_at) / 1000)
