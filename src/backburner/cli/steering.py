"""`cancel`, `retry`: stopping tasks and running them once more, by their ids or all that a filter chooses."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import NotAllowedNow, TaskNotFound
from ..lifecycle import TERMINAL, State
from ..records import status_record
from ..terminal_text import printable
from .completion import complete_task_id
from .filters import every_task
from .output import age, cell, print_json, say, show, state_cell, table
from .place import Place
from .verb import verb

if TYPE_CHECKING:
    from ..service import TaskStatus
    from ..task import Task

TaskIds = Annotated[
    list[str] | None,
    typer.Argument(metavar="TASK_ID…", help="The tasks", autocompletion=complete_task_id, show_default=False),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before acting on what a filter chooses")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what a filter chooses")]
#: What is tried once more where no state is named: who cancelled a task did not want it.
_WENT_WRONG = [State.FAILED, State.TIMED_OUT]


def add_to(app: typer.Typer) -> None:
    verb(
        app,
        examples=[
            "backburner cancel tsk_01J8WQ6JY7 -t lab.py",
            "backburner cancel tsk_01J8WQ6JY7 --reason 'wrong structure'",
            "backburner cancel --state queued --tool relax --dry-run",
            "backburner cancel --active --yes",
        ],
        filtered=True,
        remote=True,
    )(cancel)
    verb(
        app,
        examples=[
            "backburner retry tsk_01J8WQ6JY7 -t lab.py",
            "backburner retry --state failed --since 1h --yes",
        ],
        filtered=True,
        without=["active"],
        remote=True,
    )(retry)


def cancel(
    place: Place,
    chosen: dict[str, Any],
    task_ids: TaskIds = None,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Kept with the task")] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Ask for tasks to be stopped; harmless for those that are finished.

    Name them, or choose them by a filter: then all that are not finished and fit are cancelled. A running
    tool is told first, and killed if it does not end within supervisor.cancel_grace_s. With --json there is
    a line of JSON for each task.
    """
    unfinished = [state for state in State if state not in TERMINAL]
    for task_id in _chosen(place, "cancel", task_ids, chosen, unfinished, yes=yes, dry_run=dry_run):
        status = place.service.cancel(task_id, owner=place.owner, reason=reason)
        if place.as_json:
            answer = {"task_id": task_id, "state": str(status.task.state), "acknowledged": True}
            print_json(answer, indent=None)
        else:
            show(_sentence(status))


def retry(
    place: Place,
    chosen: dict[str, Any],
    task_ids: TaskIds = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Run failed, cancelled or timed-out tasks once more, with the same ids and inputs.

    Name them, or choose them by a filter: then all that fit, and that failed or timed out if no state is
    named. With --json there is the task, or of several a line of JSON for each.
    """
    ids = _chosen(place, "retry", task_ids, chosen, _WENT_WRONG, yes=yes, dry_run=dry_run)
    one = task_ids is not None and len(task_ids) == 1
    status: TaskStatus | None = None
    for task_id in ids:
        try:
            status = place.service.retry(task_id, owner=place.owner)
        except (NotAllowedNow, TaskNotFound) as error:
            if task_ids:
                raise
            say(f"left alone: {printable(error)}")  # another was faster
            continue
        if place.as_json:
            print_json(status_record(status), indent=2 if one else None)
        else:
            show(_sentence(status))
    if status is None or place.as_json:
        return
    place.say_if_nobody_works(status.task)
    if one:
        say(f"watch it with: {place.command('watch', status.task_id)}")


def _chosen(
    place: Place,
    verb: str,
    task_ids: Sequence[str] | None,
    chosen: dict[str, Any],
    states: Sequence[State],
    *,
    yes: bool,
    dry_run: bool,
) -> list[str]:
    """The ids to act on: those that are named, or all that the filter chooses and the user agrees to.

    `states` are for a filter that names none. Nothing is left when there is nothing to do.
    """
    if bool(task_ids) == bool(chosen):
        raise typer.BadParameter("name tasks, or choose them by a filter such as --state or --tool; not both")
    if task_ids and not dry_run:
        return [*task_ids]
    if task_ids:
        tasks = [place.service.status(task_id, owner=place.owner).task for task_id in task_ids]
    else:
        tasks = list(every_task(place, {"states": states, **chosen}))
    count = "1 task" if len(tasks) == 1 else f"{len(tasks)} tasks"
    if not tasks:
        say("No tasks.")
    elif dry_run:
        _show(place, tasks)
        say(f"{count}; without --dry-run, {verb} acts on all of them.")
    elif yes or _agrees(f"{verb.capitalize()} {count}?"):
        return [task.task_id for task in tasks]
    return []


def _show(place: Place, tasks: Sequence[Task]) -> None:
    if place.as_json:
        print_json({"tasks": [task.task_id for task in tasks], "dry_run": True})
        return
    rows = [[one.task_id, state_cell(one.state), one.tool_name, age(one.submitted_at)] for one in tasks]
    show(table(["TASK", "STATE", "TOOL", "AGE"], rows, whole=("TASK", "STATE")))


def _agrees(question: str) -> bool:
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"{question} Nobody can be asked here: add --yes, or look with --dry-run")
    return typer.confirm(question, err=True)


def _sentence(status: TaskStatus) -> Any:
    return cell(f"{status.task_id} ").append_text(state_cell(status.task.state))
