"""Commands for existing tasks: `ls`, `show`, `cancel`, `retry` and `artifacts`."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.files import safe_file_name
from ..core.lifecycle import TERMINAL, State
from ..core.text import printable
from ..errors import ArtifactNotFound, EngineError, NotAllowedNow, TaskNotFound
from ..service.names import owner_name
from ..service.records import record, status_record
from .command import FILTERS, TASKS, ListGroup, TaskId, command, complete_task_id, every_task, group
from .logs import question_hints
from .output import (
    age,
    cell,
    error_line,
    field_table,
    moment,
    print_json,
    say,
    show,
    show_live,
    size,
    span,
    state_cell,
    stdout,
    table,
    took_s,
)
from .place import Place

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..core.task import Artifact
    from ..service.cursors import TaskPage
    from ..service.tasks import TaskStatus


#: Narrower terminals show abbreviated task ids.
_WIDTH_FOR_WHOLE_IDS = 110


@command(
    "ls",
    examples=[
        "backburner ls -t lab.py",
        "backburner ls --active --watch",
        "backburner ls --state failed --state timed_out --since 1d",
        "backburner ls --tool relax --tag project:screening --json | jq -r '.tasks[].task_id'",
    ],
    filters=FILTERS,
    remote=True,
)
def list_tasks(
    place: Place,
    chosen: dict[str, Any],
    limit: Annotated[int, typer.Option("--limit", "-n", help="The number of tasks")] = 20,
    cursor: Annotated[str | None, typer.Option(help="Continue after this page (next_cursor)")] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Update the list until q or Ctrl-C")] = False,
) -> None:
    """List tasks, newest first."""

    def read() -> tuple[TaskPage, list[TaskStatus]]:
        page = place.service.list(owner=place.owner, **chosen, limit=limit, cursor=cursor)
        return page, [place.service.view(task) for task in page.tasks]

    def picture() -> RenderableType:
        from rich.console import Group

        page, statuses = read()
        rows = _table(place, statuses) if statuses else cell("No tasks.")
        return Group(rows, cell("… and older ones" if page.next_cursor else "", "dim"))

    if watch and not place.as_json:
        show_live(place, picture)
        return
    page, statuses = read()
    if place.as_json:
        print_json({"tasks": [status_record(one) for one in statuses], "next_cursor": page.next_cursor})
        return
    if statuses:
        show(_table(place, statuses))
    else:
        say("No tasks.")
    if page.next_cursor:
        say(f"There are more: --limit {limit * 5}, or --cursor {page.next_cursor}")
    if hidden := hidden_tasks(place):
        say(f"{hidden} not shown: --all-owners", "dim")


def hidden_tasks(place: Place) -> str:
    """Return a phrase such as "2 tasks of other owners are"; empty if there are none."""
    if place.owner is None:
        return ""
    owners = place.owners()
    count = sum(owners.values()) - owners.get(place.owner, 0)
    if count == 1:
        return "1 task of another owner is"
    return f"{count} tasks of other owners are" if count else ""


def _table(place: Place, statuses: Sequence[TaskStatus]) -> RenderableType:
    owners = place.owner is None
    columns = ["TASK", "STATE", *(["OWNER"] if owners else []), "TOOL", "AGE", "TOOK", "PROGRESS"]
    rows = [
        [
            shown_id(place, status.task_id),
            state_cell(status.task.state),
            *([owner_name(status.task.owner)] if owners else []),
            status.task.tool_name,
            age(status.task.submitted_at),
            span(took_s(status.task)),
            progress_text(status),
        ]
        for status in statuses
    ]
    return table(columns, rows, whole=("TASK", "STATE", "OWNER", "AGE"))


def shown_id(place: Place, task_id: str) -> str:
    """Return a task id, abbreviated on a narrow terminal."""
    return task_id if stdout().width >= _WIDTH_FOR_WHOLE_IDS else place.short_id(task_id)


def progress_text(status: TaskStatus) -> str:
    """Return the progress of a task, its question, its error or the reason it waits."""
    task, progress = status.task, status.task.progress
    if task.error is not None and task.finished:
        return printable(error_line(task.error))
    if task.state is State.INPUT_REQUIRED and status.questions:
        return printable(f"asks: {status.questions[0].params.get('message', '')}")
    if task.waits_for is not None:
        return printable(task.waits_for)
    if task.finished or progress is None:
        return ""
    percent = None if progress.percent is None else f"{progress.percent:.0f}%"
    left = None if status.eta_s is None else f"{span(status.eta_s)} left"
    return printable(" · ".join(part for part in (percent, progress.phase, left, progress.message) if part))


@command(
    "show",
    examples=[
        "backburner show tsk_01J8WQ6JY7 -t lab.py",
        "backburner show tsk_01J8WQ6JY7 --json | jq .progress",
    ],
    remote=True,
)
def show_task(
    place: Place,
    task_id: TaskId,
    inputs: Annotated[bool, typer.Option("--inputs", help="Show the inputs, including secrets")] = False,
) -> None:
    """Show the details of a task: state, progress, inputs, attempts, history, artifacts and error."""
    status = place.service.status(task_id, owner=place.owner)
    task = status.task
    history = place.service.history(task_id, owner=place.owner)
    attempts, events = history.attempts, history.events
    artifacts = place.service.artifacts(task_id, owner=place.owner)
    given = task.inputs if inputs else place.shown_inputs(task)
    if place.as_json:
        parts = {"attempts": record(attempts), "events": record(events), "artifacts": record(artifacts)}
        print_json({**status_record(status), "inputs": given, **parts})
        return
    show(field_table([*_fields(status), ("inputs", _inputs_cell(given))]))
    if attempts:
        show("", cell("Attempts", "bold"))
        rows = [
            [one.attempt, one.outcome or "running", one.worker_id, moment(one.claimed_at), _took(one)]
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
        return cell("hidden, because they may contain secrets; --inputs shows them", "dim")
    return Text(printable(json.dumps(given, ensure_ascii=False, indent=2), lines=True))


def _fields(status: TaskStatus) -> list[tuple[str, Any]]:
    task, progress = status.task, status.task.progress
    parts: list[str | None] = []
    if progress is not None:
        percent = None if progress.percent is None else f"{progress.percent:.0f}%"
        steps = None if not progress.step_total else f"{progress.step:g} of {progress.step_total:g}"
        parts = [percent, steps, progress.phase, progress.message]
    queue = task.queue if status.position is None else f"{task.queue}, position {status.position}"
    return [
        ("task", task.task_id),
        ("tool", task.tool_name),
        ("state", state_cell(task.state)),
        ("waits for", task.waits_for),
        ("progress", " · ".join(part for part in parts if part) or None),
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
        ("expires", moment(task.expires_at)),
        ("app", task.target or None),
        ("idempotency key", task.idempotency_key),
        ("parent", task.parent_id),
        ("cancel reason", task.cancel_reason),
    ]


def _took(attempt: Any) -> str:
    if attempt.started_at is None or attempt.ended_at is None:
        return "-"
    return span((attempt.ended_at - attempt.started_at) / 1000)


TaskIds = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TASK_ID…]", help="The tasks", autocompletion=complete_task_id, show_default=False
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation of a filter")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only list the tasks")]


@command(
    examples=[
        "backburner cancel tsk_01J8WQ6JY7 -t lab.py",
        "backburner cancel tsk_01J8WQ6JY7 --reason 'wrong structure'",
        "backburner cancel --state queued --tool relax --dry-run",
        "backburner cancel --active --yes",
    ],
    filters=FILTERS,
    remote=True,
)
def cancel(
    place: Place,
    chosen: dict[str, Any],
    task_ids: TaskIds = None,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Stored with the task")] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Cancel tasks, named by id or chosen by filters. Finished tasks stay as they are.

    A running tool is told first, and killed after supervisor.cancel_grace_s. --json prints a line of JSON
    for each task.
    """
    unfinished = [state for state in State if state not in TERMINAL]
    for task_id in _chosen_ids(place, "cancel", task_ids, chosen, unfinished, yes=yes, dry_run=dry_run):
        status = place.service.cancel(task_id, owner=place.owner, reason=reason)
        if place.as_json:
            answer = {"task_id": task_id, "state": str(status.task.state), "acknowledged": True}
            print_json(answer, indent=None)
        else:
            show(cell(f"{task_id} ").append_text(state_cell(status.task.state)))


@command(
    examples=[
        "backburner retry tsk_01J8WQ6JY7 -t lab.py",
        "backburner retry --state failed --since 1h --yes",
    ],
    filters=[key for key in FILTERS if key != "active"],
    remote=True,
)
def retry(
    place: Place,
    chosen: dict[str, Any],
    task_ids: TaskIds = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Run failed, cancelled or timed-out tasks again, with the same ids and inputs.

    Name tasks, or choose them by filters; without --state, a filter chooses failed and timed-out tasks.
    --json prints the task, or a line of JSON for each of several.
    """
    states = [State.FAILED, State.TIMED_OUT]
    ids = _chosen_ids(place, "retry", task_ids, chosen, states, yes=yes, dry_run=dry_run)
    one = task_ids is not None and len(task_ids) == 1
    status: TaskStatus | None = None
    for task_id in ids:
        try:
            status = place.service.retry(task_id, owner=place.owner)
        except (NotAllowedNow, TaskNotFound) as error:
            if task_ids:
                raise
            say(f"skipped: {printable(error)}")  # it has changed since the filter chose it
            continue
        if place.as_json:
            print_json(status_record(status), indent=2 if one else None)
        else:
            show(cell(f"{task_id} ").append_text(state_cell(status.task.state)))
    if status is None or place.as_json:
        return
    place.say_if_nobody_works(status.task)
    if one:
        say(f"watch it with: {place.command('watch', status.task_id)}")


def _chosen_ids(
    place: Place,
    verb: str,
    task_ids: Sequence[str] | None,
    chosen: dict[str, Any],
    states: Sequence[State],
    *,
    yes: bool,
    dry_run: bool,
) -> list[str]:
    """Return the named ids, or those that the filter chooses and the user confirms.

    `states` apply to a filter without states.
    """
    if bool(task_ids) == bool(chosen):
        raise typer.BadParameter("name tasks, or choose them by a filter such as --state or --tool; not both")
    if task_ids and not dry_run:
        return [*task_ids]
    if task_ids:
        tasks = [place.service.status(task_id, owner=place.owner).task for task_id in task_ids]
    else:
        tasks = list(every_task(place, {"states": states, **chosen}))
    ids = [task.task_id for task in tasks]
    count = "1 task" if len(tasks) == 1 else f"{len(tasks)} tasks"
    if not tasks:
        say("No tasks.")
    elif not dry_run:
        return ids if yes or _confirmed(f"{verb.capitalize()} {count}?") else []
    elif place.as_json:
        print_json({"tasks": ids, "dry_run": True})
    else:
        rows = [[one.task_id, state_cell(one.state), one.tool_name, age(one.submitted_at)] for one in tasks]
        show(table(["TASK", "STATE", "TOOL", "AGE"], rows, whole=("TASK", "STATE")))
        say(f"{count}; without --dry-run, {verb} acts on all of them.")
    return []


def _confirmed(question: str) -> bool:
    if not sys.stdin.isatty():
        raise typer.BadParameter(
            f"{question} There is no terminal to ask: add --yes, or check with --dry-run"
        )
    return typer.confirm(question, err=True)


artifacts = group("artifacts", "List and download the artifacts of a task.", TASKS, ListGroup)


@command(
    "ls",
    group=artifacts,
    examples=[
        "backburner artifacts tsk_01J8WQ6JY7 -t lab.py",
        "backburner artifacts ls tsk_01J8WQ6JY7 --json",
    ],
    remote=True,
)
def list_artifacts(place: Place, task_id: TaskId) -> None:
    """List the artifacts of a task."""
    found = place.service.artifacts(task_id, owner=place.owner)
    if place.as_json:
        print_json({"task_id": task_id, "artifacts": record(found)})
        return
    if not found:
        say("No artifacts.")
        return
    rows = [
        [one.name, one.kind, size(one.size_bytes), moment(one.created_at), one.artifact_id] for one in found
    ]
    show(table(["NAME", "KIND", "SIZE", "CREATED", "ARTIFACT"], rows, whole=("NAME", "SIZE")))


@command(
    "get",
    group=artifacts,
    examples=[
        "backburner artifacts get tsk_01J8WQ6JY7 -t lab.py              # all, to this folder",
        "backburner artifacts get tsk_01J8WQ6JY7 opt.traj -o results/",
    ],
    remote=True,
)
def get_artifacts(
    place: Place,
    task_id: TaskId,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME…", help="Names or artifact ids (default: all)", show_default=False),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The target folder")] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files")] = False,
) -> None:
    """Download artifacts of a task, and check each against its SHA-256."""
    found = place.service.artifacts(task_id, owner=place.owner)
    for name in names or ():
        if not any(name in (one.name, one.artifact_id) for one in found):
            raise ArtifactNotFound(artifact_id=printable(name))
    wanted = {
        one.name: one for one in found if not names or one.name in names or one.artifact_id in names
    }  # several attempts may have made a name: the last counts
    output.mkdir(parents=True, exist_ok=True)
    fetched = []
    for artifact in wanted.values():
        target = _download(place, artifact, output, force=force)
        fetched.append({**record(artifact), "file": str(target)})
        if not place.as_json:
            print(printable(target))
    if place.as_json:
        print_json({"task_id": task_id, "artifacts": fetched})


def _download(place: Place, artifact: Artifact, folder: Path, *, force: bool) -> Path:
    target = folder / safe_file_name(artifact.name)
    if target.exists() and not force:
        raise typer.BadParameter(f"{printable(target)} exists already; --force overwrites it")
    partial = target.with_name(f".{target.name}.{artifact.artifact_id}")
    digest = hashlib.sha256()
    try:
        with partial.open("wb") as out:
            for chunk in place.artifacts.chunks(artifact):
                digest.update(chunk)
                out.write(chunk)
        if digest.hexdigest() != artifact.sha256:
            reason = (
                f"{artifact.artifact_id} has changed in storage: its SHA-256 is {digest.hexdigest()},"
                f" not {artifact.sha256}"
            )
            raise EngineError(engine=place.settings.engine, reason=reason)
        partial.replace(target)
    except FileNotFoundError:
        raise ArtifactNotFound(artifact_id=artifact.artifact_id) from None
    finally:
        partial.unlink(missing_ok=True)
    return target
