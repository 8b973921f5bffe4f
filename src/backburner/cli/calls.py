"""Commands that start a task, wait for its result and answer its questions."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from ..core.lifecycle import State
from ..core.requests import TaskRequest
from ..core.task import LOCAL_OWNER, Resources
from ..core.text import printable
from ..core.times import duration_s
from ..service.records import record, result_record, status_record, submission_record, value_of
from .command import Exit, TaskId, command, complete_tool, exit_of_state
from .logs import follow, question_hints, view_for
from .output import cell, error_line, print_json, say, show, state_cell
from .place import Place

if TYPE_CHECKING:
    from ..core.task import InputRequest
    from ..service.tasks import TaskResult, TaskStatus


_FOREVER_S = 10 * 365 * 86400.0
_JSON_INPUT = "JSON, @file or - for stdin"
Timeout = Annotated[str | None, typer.Option(metavar="TIME", help="Stop waiting; the task continues")]


def read_inputs(words: Sequence[str], whole: str | None, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object in `whole` (JSON, `@file` or `-`), updated by each `key=value` or `key:=json`.

    A value is text where the schema says so, else JSON if it is valid JSON. Raises typer.BadParameter.
    """
    inputs = {} if whole is None else _read_object(whole)
    properties = schema.get("properties") or {}
    for word in words:
        key, value = _read_word(word, properties)
        inputs[key] = value
    return inputs


def _read_object(text: str) -> dict[str, Any]:
    try:
        if text == "-":
            text = sys.stdin.read()
        elif text.startswith("@"):
            text = Path(text[1:]).read_text("utf-8")
        value = json.loads(text)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"cannot read the JSON object: {printable(error)}") from None
    if not isinstance(value, dict):
        raise typer.BadParameter("the JSON must be an object with a field for each input")
    return value


def _read_word(word: str, properties: Mapping[str, Any]) -> tuple[str, Any]:
    key, equals, text = word.partition("=")
    if not equals or not key.rstrip(":"):
        raise typer.BadParameter(f"{printable(word)} is not key=value, nor key:=json")
    if key.endswith(":"):
        try:
            return key[:-1], json.loads(text)
        except ValueError as error:
            raise typer.BadParameter(f"{printable(word)} is not JSON after := ({error})") from None
    if _is_text(properties.get(key) or {}):
        return key, text
    try:
        return key, json.loads(text)
    except ValueError:
        return key, text


def _is_text(schema: Any) -> bool:
    """Return whether a schema accepts only strings."""
    if not isinstance(schema, Mapping):
        return False
    if "type" in schema:
        return schema["type"] in ("string", ["string"])
    return "enum" in schema and all(isinstance(value, str) for value in schema["enum"])


@command(
    needs_app=True,
    examples=[
        "backburner call relax structure=cu.cif steps=200 -t lab.py",
        "backburner call add a=1 b:=2 --json -t lab.py",
        "echo '{\"a\": 1}' | backburner call add -i - --timeout 5m",
        "backburner call relax -i @inputs.json --detach --tag project:screening",
    ],
    remote=True,
)
def call(
    place: Place,
    tool: Annotated[
        str, typer.Argument(metavar="TOOL", help="The tool", autocompletion=complete_tool, show_default=False)
    ],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INPUTS",
            help="key=value (text where the tool takes text, else JSON) or key:=json",
            show_default=False,
        ),
    ] = None,
    whole: Annotated[
        str | None, typer.Option("--input", "-i", metavar="JSON", help=f"All inputs: {_JSON_INPUT}")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Only print the task id")] = False,
    queue: Annotated[str | None, typer.Option(metavar="NAME", help="Instead of the tool's queue")] = None,
    priority: Annotated[int, typer.Option(help="From -1000 to 1000; higher runs first")] = 0,
    tags: Annotated[list[str] | None, typer.Option("--tag", metavar="TAG", help="May be repeated")] = None,
    ttl: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long to keep the result, as 7d")
    ] = None,
    max_runtime: Annotated[str | None, typer.Option(metavar="TIME", help="The time limit, as 30m")] = None,
    key: Annotated[
        str | None, typer.Option("--idempotency-key", metavar="KEY", help="Same key, same task")
    ] = None,
    timeout: Timeout = None,
) -> None:
    """Start a task, wait for it and print its result.

    Progress and log go to stderr, the result to stdout. The task is durable: it continues after Ctrl-C or
    when the terminal closes.
    """
    request = TaskRequest(
        tool,
        read_inputs(inputs or (), whole, place.operator.input_schema(tool)),
        owner=place.owner or LOCAL_OWNER,
        queue=queue,
        priority=priority,
        tags=tags or (),
        ttl_s=None if ttl is None else duration_s(ttl, "ttl"),
        resources=Resources(
            max_runtime_s=None if max_runtime is None else duration_s(max_runtime, "max_runtime")
        ),
        idempotency_key=key,
    )
    try:
        status = place.service.submit_request(request)
    except KeyboardInterrupt:
        say(f"The task may have been submitted; check with: {place.command('ls', '--tool', tool)}")
        raise
    if not detach:
        _wait(place, status.task_id, tool, timeout)
    if place.as_json:
        print_json(submission_record(status))
        return
    print(status.task_id)
    if not status.created:
        say("A task with this idempotency key exists already.")
    say(f"watch it with: {place.command('watch', status.task_id)}")


@command(
    examples=[
        "backburner watch tsk_01J8WQ6JY7 -t lab.py",
        "backburner watch tsk_01J8WQ6JY7 --timeout 30s",
    ],
    remote=True,
)
def watch(place: Place, task_id: TaskId, timeout: Timeout = None) -> None:
    """Show the log and progress of a task until it is finished, then print its result."""
    status = place.service.status(task_id, owner=place.owner)
    _wait(place, task_id, status.task.tool_name, timeout)


def _wait(place: Place, task_id: str, tool_name: str, timeout: str | None) -> NoReturn:
    """Follow a task to its end, print its result, and exit with its exit code."""
    timeout_s = None if timeout is None else duration_s(timeout, "timeout")
    try:
        with view_for(place, printable(tool_name)) as view:
            status = follow(place, task_id, view, timeout_s)
    except KeyboardInterrupt:
        _say_next_commands(place, task_id, "Interrupted; the task continues.")
        raise typer.Exit(Exit.INTERRUPTED) from None
    task = status.task
    if not task.finished:
        if place.as_json:
            print_json(status_record(status))
        _say_next_commands(place, task_id, f"Timeout: the task is {task.state}; it continues.")
        raise typer.Exit(Exit.UNFINISHED)
    outcome = place.service.result(task_id, owner=place.owner)
    _print_result(place, outcome)
    if task.state is State.SUCCEEDED and not place.as_json:
        for artifact in record(outcome.artifacts):
            say(f"artifact {printable(artifact['name'])}: {place.command('artifacts get', task_id)}")
    raise typer.Exit(exit_of_state(task.state))


def _say_next_commands(place: Place, task_id: str, reason: str) -> None:
    say(reason)
    for label, words in (("come back", "watch"), ("result", "result"), ("stop it", "cancel")):
        say(f"  {label + ':':<11}{place.command(words, task_id)}")


@command(
    examples=[
        "backburner result tsk_01J8WQ6JY7 -t lab.py",
        "backburner result tsk_01J8WQ6JY7 --wait --json | jq .result",
        "backburner result tsk_01J8WQ6JY7 --wait --timeout 10m || echo not yet",
    ],
    remote=True,
)
def result(
    place: Place,
    task_id: TaskId,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait until the task is finished")] = False,
    timeout: Annotated[str | None, typer.Option(metavar="TIME", help="Wait at most this long")] = None,
) -> None:
    """Print the result of a finished task: text as it is, anything else as JSON.

    The exit code is 5 if the task is not finished, and 1 if it failed.
    """
    if wait or timeout is not None:
        wait_s = _FOREVER_S if timeout is None else duration_s(timeout, "timeout")
        place.service.wait(task_id, wait_s, owner=place.owner)
    outcome = place.service.result(task_id, owner=place.owner)
    _print_result(place, outcome)
    raise typer.Exit(exit_of_state(outcome.task.state))


def _print_result(place: Place, outcome: TaskResult) -> None:
    task = outcome.task
    if place.as_json:
        print_json(result_record(outcome, place.artifacts))
    elif task.state is State.SUCCEEDED:
        value = value_of(outcome, place.artifacts)
        if isinstance(value, str):
            print(printable(value, lines=True))
        else:
            print_json(value)
    else:
        say(f"The task {task.task_id} is {task.state}.", "red")
        if task.error is not None:
            say(printable(error_line(task.error), lines=True))
        say(f"  details: {place.command('show', task.task_id)}")
        say(f"  again:   {place.command('retry', task.task_id)}")


@command(
    examples=[
        "backburner answer tsk_01J8WQ6JY7 name=copper confirm=true",
        "backburner answer tsk_01J8WQ6JY7            # shows the question, and prompts on a terminal",
        "backburner answer tsk_01J8WQ6JY7 --decline",
        'backburner answer tsk_01J8WQ6JY7 --question basis-1-1 -i \'{"basis": "def2"}\'',
    ],
    remote=True,
)
def answer(
    place: Place,
    task_id: TaskId,
    fields: Annotated[
        list[str] | None, typer.Argument(metavar="FIELDS", help="key=value or key:=json", show_default=False)
    ] = None,
    whole: Annotated[
        str | None, typer.Option("--input", "-i", metavar="JSON", help=f"The answer: {_JSON_INPUT}")
    ] = None,
    question: Annotated[str | None, typer.Option(metavar="KEY", help="One of several questions")] = None,
    decline: Annotated[bool, typer.Option("--decline", help="Decline to answer")] = False,
    dismiss: Annotated[bool, typer.Option("--cancel", help="Dismiss the question")] = False,
) -> None:
    """Answer the question of a task in the state input_required."""
    status = place.service.status(task_id, owner=place.owner)
    if not status.questions:
        raise typer.BadParameter(f"the task is {status.task.state} and has no open question")
    asked = _choose_question(status, question)
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


def _choose_question(status: TaskStatus, key: str | None) -> InputRequest:
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
        content = _prompt(asked, schema)
    else:
        for hint in question_hints(place, status):
            say(hint)
        raise typer.BadParameter("give the answer")
    return content if asked.method != "elicitation/create" else {"action": "accept", "content": content}


def _prompt(asked: InputRequest, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Prompt for each field on the terminal; an optional field may stay empty."""
    say(printable(asked.params.get("message") or asked.method, lines=True), "magenta")
    words = []
    for name, described in schema["properties"].items():
        title = printable(described.get("title") or described.get("description") or name)
        needed = name in schema.get("required", ())
        text = typer.prompt(title, default=None if needed else "", show_default=False, err=True)
        if text or needed:
            words.append(f"{name}={text}")
    return read_inputs(words, None, schema)
