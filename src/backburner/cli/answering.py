"""`answer`: what a task wants to know."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..records import status_record
from ..terminal_text import printable
from .inputs import read_inputs
from .output import cell, print_json, say, show, state_cell
from .place import Place
from .verb import TaskId, verb
from .watching import question_hints

if TYPE_CHECKING:
    from ..service import TaskStatus
    from ..task import InputRequest


def add_to(app: typer.Typer) -> None:
    verb(
        app,
        examples=[
            "backburner answer tsk_01J8WQ6JY7 name=copper confirm=true",
            "backburner answer tsk_01J8WQ6JY7            # shows what is asked; on a terminal, asks you",
            "backburner answer tsk_01J8WQ6JY7 --decline",
            'backburner answer tsk_01J8WQ6JY7 --question basis-1-1 -i \'{"basis": "def2"}\'',
        ],
        remote=True,
    )(answer)


def answer(
    place: Place,
    task_id: TaskId,
    fields: Annotated[
        list[str] | None, typer.Argument(metavar="FIELDS", help="key=value or key:=json", show_default=False)
    ] = None,
    whole: Annotated[
        str | None,
        typer.Option("--input", "-i", metavar="JSON", help="The answer: JSON, @file or - for stdin"),
    ] = None,
    question: Annotated[
        str | None, typer.Option(metavar="KEY", help="Which question, when there are several")
    ] = None,
    decline: Annotated[bool, typer.Option("--decline", help="Say no")] = False,
    dismiss: Annotated[bool, typer.Option("--cancel", help="Dismiss the question without an answer")] = False,
) -> None:
    """Answer a task that is input_required."""
    status = place.service.status(task_id, owner=place.owner)
    if not status.questions:
        raise typer.BadParameter(f"the task is {status.task.state} and asks nothing")
    asked = _choose(status, question)
    if decline or dismiss:
        reply: dict[str, Any] = {"action": "decline" if decline else "cancel"}
    else:
        reply = _reply(place, status, asked, fields or [], whole)
    after = place.service.answer_input(task_id, {asked.key: reply}, owner=place.owner)
    if place.as_json:
        print_json(status_record(after))
        return
    show(cell(f"{task_id} ").append_text(state_cell(after.task.state)))
    for hint in question_hints(place, after):
        say(hint, "magenta")


def _choose(status: TaskStatus, key: str | None) -> InputRequest:
    by_key = {one.key: one for one in status.questions}
    if key is None and len(by_key) == 1:
        return next(iter(by_key.values()))
    if key not in by_key:
        known = ", ".join(map(printable, by_key))
        raise typer.BadParameter(f"name one of the open questions with --question: {known}")
    return by_key[key]


def _reply(
    place: Place, status: TaskStatus, asked: InputRequest, fields: list[str], whole: str | None
) -> dict[str, Any]:
    schema = asked.params.get("requestedSchema") or {}
    if fields or whole is not None:
        content = read_inputs(fields, whole, schema)
    elif not schema.get("properties"):
        content = {}
    elif sys.stdin.isatty():
        content = _ask(asked, schema)
    else:
        for hint in question_hints(place, status):
            say(hint)
        raise typer.BadParameter("say what the answer is")
    return content if asked.method != "elicitation/create" else {"action": "accept", "content": content}


def _ask(asked: InputRequest, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Ask the person at the terminal for each field; an optional one may be left empty."""
    say(printable(asked.params.get("message") or asked.method, lines=True), "magenta")
    words = []
    for name, described in schema["properties"].items():
        title = printable(described.get("title") or described.get("description") or name)
        needed = name in schema.get("required", ())
        text = typer.prompt(title, default=None if needed else "", show_default=False, err=True)
        if text or needed:
            words.append(f"{name}={text}")
    return read_inputs(words, None, schema)
