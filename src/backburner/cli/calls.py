"""`submit`, `call`, `watch`: starting a task, and seeing it through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..records import record, result_record, status_record, submission_record
from ..task import LOCAL_OWNER, Resources
from ..terminal_text import printable
from .completion import complete_tool
from .exits import Exit, exit_of_state
from .inputs import read_inputs
from .output import print_json, say
from .place import Place
from .results import print_value, say_error
from .verb import TaskId, verb
from .watching import follow, view_for

if TYPE_CHECKING:
    from ..service import TaskStatus
    from ..task_request import TaskRequest

Tool = Annotated[
    str, typer.Argument(metavar="TOOL", help="The tool", autocompletion=complete_tool, show_default=False)
]
Inputs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="INPUTS",
        help="key=value (text where the tool takes text, else JSON) or key:=json",
        show_default=False,
    ),
]
Whole = Annotated[
    str | None, typer.Option("--input", "-i", metavar="JSON", help="All inputs: JSON, @file or - for stdin")
]
Queue = Annotated[str | None, typer.Option(metavar="NAME", help="Another queue than the tool's own")]
Priority = Annotated[int, typer.Option(help="-1000 to 1000; the highest goes first")]
Tags = Annotated[list[str] | None, typer.Option("--tag", metavar="TAG", help="A tag; may be repeated")]
Ttl = Annotated[
    str | None, typer.Option(metavar="TIME", help="How long it is kept after its end, such as 12h or 7d")
]
MaxRuntime = Annotated[
    str | None, typer.Option(metavar="TIME", help="How long the task may run, such as 30m")
]
Key = Annotated[
    str | None,
    typer.Option(
        "--idempotency-key", metavar="KEY", help="The same key gives the same task, once and for all"
    ),
]
Timeout = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Stop watching after so long; the task goes on (exit code 5)"),
]


def add_to(app: typer.Typer) -> None:
    verb(
        app,
        tools=True,
        examples=[
            "backburner submit relax structure=cu.cif steps=200 -t lab.py",
            "backburner submit relax -i @inputs.json --tag project:screening --priority 5",
            "backburner submit relax -i @inputs.json --idempotency-key run-7 --json",
        ],
        remote=True,
    )(submit)
    verb(
        app,
        tools=True,
        examples=[
            "backburner call relax structure=cu.cif steps=200 -t lab.py",
            "backburner call add a=1 b:=2 --json -t lab.py",
            "echo '{\"a\": 1}' | backburner call add -i - --timeout 5m",
        ],
        remote=True,
    )(call)
    verb(
        app,
        examples=[
            "backburner watch tsk_01J8WQ6JY7 -t lab.py",
            "backburner watch tsk_01J8WQ6JY7 --timeout 30s   # exit code 5 when it is not finished then",
        ],
        remote=True,
    )(watch)


def submit(
    place: Place,
    tool: Tool,
    inputs: Inputs = None,
    whole: Whole = None,
    queue: Queue = None,
    priority: Priority = 0,
    tags: Tags = None,
    ttl: Ttl = None,
    max_runtime: MaxRuntime = None,
    key: Key = None,
) -> None:
    """Start a task and return at once, with its id.

    The task is on disk when this returns, and goes on whatever happens to this terminal.
    """
    request = _request(
        place,
        tool,
        inputs=inputs,
        whole=whole,
        queue=queue,
        priority=priority,
        tags=tags,
        ttl=ttl,
        max_runtime=max_runtime,
        key=key,
    )
    status = _submit(place, request)
    if place.as_json:
        print_json(submission_record(status))
        return
    print(status.task_id)
    if not status.created:
        say("There is a task with this idempotency key already: this is it.")
    say(f"watch it with: {place.command('watch', status.task_id)}")


def call(
    place: Place,
    tool: Tool,
    inputs: Inputs = None,
    whole: Whole = None,
    queue: Queue = None,
    priority: Priority = 0,
    tags: Tags = None,
    ttl: Ttl = None,
    max_runtime: MaxRuntime = None,
    key: Key = None,
    timeout: Timeout = None,
) -> None:
    """Start a task, watch it, and print its result.

    The bar and the log go to stderr, the result to stdout. Ctrl-C only stops the watching: the
    task goes on, and you are told how to come back.
    """
    request = _request(
        place,
        tool,
        inputs=inputs,
        whole=whole,
        queue=queue,
        priority=priority,
        tags=tags,
        ttl=ttl,
        max_runtime=max_runtime,
        key=key,
    )
    status = _submit(place, request)
    _see_through(place, status.task_id, tool, timeout)


def watch(place: Place, task_id: TaskId, timeout: Timeout = None) -> None:
    """Watch a task until it is finished, and print its result; as `call` does.

    All its log is shown first. Ctrl-C only stops the watching.
    """
    status = place.service.status(task_id, owner=place.owner)
    _see_through(place, task_id, status.task.tool_name, timeout)


def _request(
    place: Place,
    tool: str,
    *,
    inputs: list[str] | None,
    whole: str | None,
    queue: str | None,
    priority: int,
    tags: list[str] | None,
    ttl: str | None,
    max_runtime: str | None,
    key: str | None,
) -> TaskRequest:
    """What the command line says, as a request. Raises UnknownTool, and what is wrong with the words."""
    from ..task_request import TaskRequest
    from ..times import duration_s

    schema = place.operator.input_schema(tool)
    max_runtime_s = None if max_runtime is None else duration_s(max_runtime, "max_runtime")
    return TaskRequest(
        tool,
        read_inputs(inputs or (), whole, schema),
        owner=place.owner or LOCAL_OWNER,
        queue=queue,
        priority=priority,
        tags=tags or (),
        ttl_s=None if ttl is None else duration_s(ttl, "ttl"),
        resources=Resources(max_runtime_s=max_runtime_s),
        idempotency_key=key,
    )


def _submit(place: Place, request: TaskRequest) -> TaskStatus:
    """Submit. What cuts it short may come after the task was kept, so say so."""
    try:
        return place.service.submit_request(request)
    except KeyboardInterrupt:
        say(f"The task may have been kept; look with: {place.command('ls', '--tool', request.tool_name)}")
        raise


def _see_through(place: Place, task_id: str, tool_name: str, timeout: str | None) -> None:
    """Watch to the end, print the outcome, and leave with its exit code."""
    from ..times import duration_s

    timeout_s = None if timeout is None else duration_s(timeout, "timeout")
    try:
        with view_for(place, printable(tool_name)) as view:
            status = follow(place, task_id, view, timeout_s)
    except KeyboardInterrupt:
        _say_how_to_come_back(place, task_id, "You stopped watching; the task goes on.")
        raise typer.Exit(Exit.INTERRUPTED) from None
    task = status.task
    if not task.finished:
        if place.as_json:
            print_json(status_record(status))
        _say_how_to_come_back(place, task_id, f"The time is over and the task is {task.state}; it goes on.")
        raise typer.Exit(Exit.UNFINISHED)
    outcome = place.service.result(task_id, owner=place.owner)
    if place.as_json:
        print_json(result_record(outcome, place.artifacts))
    elif exit_of_state(task.state) is Exit.OK:
        print_value(place, outcome)
        for artifact in record(outcome.artifacts):
            say(f"artifact {printable(artifact['name'])}: {place.command('artifacts get', task_id)}")
    else:
        say_error(place, outcome)
    raise typer.Exit(exit_of_state(task.state))


def _say_how_to_come_back(place: Place, task_id: str, what_happened: str) -> None:
    say(what_happened)
    for label, words in (("come back", "watch"), ("result", "result"), ("stop it", "cancel")):
        say(f"  {label + ':':<11}{place.command(words, task_id)}")
