"""`result`: what a task came to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..records import result_record, value_of
from ..terminal_text import printable
from .exits import exit_of_state
from .output import error_line, print_json, say
from .place import Place
from .verb import TaskId, verb

if TYPE_CHECKING:
    from ..service import TaskResult

_FOREVER_S = 10 * 365 * 86400.0


def add_to(app: typer.Typer) -> None:
    verb(
        app,
        examples=[
            "backburner result tsk_01J8WQ6JY7 -t lab.py",
            "backburner result tsk_01J8WQ6JY7 --wait --json | jq .result",
            "backburner result tsk_01J8WQ6JY7 --wait --timeout 10m || echo not yet",
        ],
        remote=True,
    )(result)


def result(
    place: Place,
    task_id: TaskId,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait until the task is finished")] = False,
    timeout: Annotated[str | None, typer.Option(metavar="TIME", help="Wait at most so long")] = None,
) -> None:
    """Print the result of a finished task.

    Text is printed as it is, everything else as JSON. A task that is not finished gives exit
    code 5, one that failed gives 1.
    """
    from ..times import duration_s

    if wait or timeout is not None:
        wait_s = _FOREVER_S if timeout is None else duration_s(timeout, "timeout")
        place.service.wait(task_id, wait_s, owner=place.owner)
    outcome = place.service.result(task_id, owner=place.owner)
    code = exit_of_state(outcome.task.state)
    if place.as_json:
        print_json(result_record(outcome, place.artifacts))
    elif code:
        say_error(place, outcome)
    else:
        print_value(place, outcome)
    raise typer.Exit(code)


def print_value(place: Place, outcome: TaskResult) -> None:
    """The value for a person or a pipe: text as text, all else as JSON."""
    value = value_of(outcome, place.artifacts)
    if isinstance(value, str):
        print(printable(value, lines=True))
    else:
        print_json(value)


def say_error(place: Place, outcome: TaskResult) -> None:
    """Why the task did not succeed, and what can be done."""
    task = outcome.task
    say(f"The task {task.task_id} is {task.state}.", "red")
    if task.error is not None:
        say(printable(error_line(task.error), lines=True))
    say(f"  details: {place.command('show', task.task_id)}")
    say(f"  again:   {place.command('retry', task.task_id)}")


def shown_value(value: Any) -> str:
    """A value in the middle of other things."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    return printable(text, lines=True)
